#!/usr/bin/env bash
# Checks that transformers loads experts in either layout: the models of tests/fixtures with a mixture are converted to
# merged experts and back by hone convert, and their logits and greedy completions must equal the stored ones.
#   scripts/check_experts.sh [PYTHON]   a Python with torch, transformers and safetensors; default python3
# Environment: HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:-python3}
hone=${HONE_BUILD_DIR:-build}/hone
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
  echo "experts: skipped: $python has no torch, transformers and safetensors"
  exit 0
fi
if [[ ! -x $hone ]]; then
  echo "experts: $hone is missing; run ./test.sh first" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
for name in qwen3_moe qwen3_moe_tied mixtral deepseek_v2 deepseek_v2_grouped_tied deepseek_v3; do
  reference=tests/fixtures/models/$name
  "$hone" convert "$reference" --experts merged --output_dir "$work/$name-merged"
  "$hone" convert "$work/$name-merged" --experts split --output_dir "$work/$name-split"
  for layout in merged split; do
    "$python" tests/fixtures/models/check_saved.py "$work/$name-$layout" "$reference" || failures=$((failures + 1))
  done
done
echo "experts: $failures of 12 folders differ"
((failures == 0))
