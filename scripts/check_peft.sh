#!/usr/bin/env bash
# Checks the exchange of adapters with PEFT: PEFT loads adapters that hone trained, and hone loads adapters that PEFT
# created. Compares logits, losses and gradients.
#   scripts/check_peft.sh [PYTHON]   a Python with torch, transformers, peft and safetensors; by default the script
#                                    creates a virtual environment in $HONE_CACHE or ~/.cache/hone, once
# Environment: HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
if [[ ! -x $build/tests/train_test ]]; then
  echo "peft: $build/tests/train_test is missing; run ./test.sh first" >&2
  exit 2
fi
python=${1:-}
if [[ -z $python ]]; then
  venv=${HONE_CACHE:-$HOME/.cache/hone}/peft-venv
  python=$venv/bin/python
  if ! "$python" -c 'import torch, transformers, peft, safetensors' 2>/dev/null; then
    python3 -m venv "$venv"
    "$python" -m pip install --quiet torch transformers peft safetensors
  fi
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/ours" "$work/fixtures/lora"
ln -s "$PWD/tests/fixtures/models" "$work/fixtures/models"

HONE_SAVE_ADAPTERS_TO=$work/ours "$build/tests/train_test" --gtest_filter='Lora.SavesForPeft' --gtest_brief=1
"$python" tests/fixtures/lora/check_adapter.py "$work/ours"

"$python" tests/fixtures/lora/make_lora.py --output "$work/fixtures/lora" --seed "$RANDOM"
HONE_PEFT_ADAPTERS=$work/fixtures/lora "$build/tests/train_test" --gtest_filter='Lora.*Peft*:-Lora.SavesForPeft' --gtest_brief=1
echo "peft: adapters load in both directions"
