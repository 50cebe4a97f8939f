#!/usr/bin/env bash
# Checks saved models: transformers loads the models that hone saves, and the logits and greedy completions must equal
# the stored ones.
#   scripts/check_parity.sh [PYTHON]   a Python with torch, transformers and safetensors; default python3
# Environment: HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:-python3}
build=${HONE_BUILD_DIR:-build}
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
  echo "parity: skipped: $python has no torch, transformers and safetensors"
  exit 0
fi
if [[ ! -x $build/tests/checkpoint_test || ! -x $build/tests/train_test ]]; then
  echo "parity: $build/tests/checkpoint_test or train_test is missing; run ./test.sh first" >&2
  exit 2
fi

saved=$(mktemp -d)
trap 'rm -rf "$saved"' EXIT
mkdir "$saved/files" "$saved/weights"
HONE_SAVE_MODELS_TO=$saved/files "$build/tests/checkpoint_test" --gtest_filter='ModelFixtures.ComeBackAsTheyAre' --gtest_brief=1
HONE_SAVE_LOADED_MODELS_TO=$saved/weights "$build/tests/train_test" --gtest_filter='*Parity.SavesWhatItHasLoaded*' \
  --gtest_brief=1
failures=0
for reference in tests/fixtures/models/*/; do
  name=$(basename "$reference")
  for kind in files weights; do
    "$python" tests/fixtures/models/check_saved.py "$saved/$kind/$name" "$reference" || failures=$((failures + 1))
  done
done
echo "parity: $failures of $((2 * $(find tests/fixtures/models -mindepth 1 -maxdepth 1 -type d | wc -l))) folders differ"
((failures == 0))
