#!/usr/bin/env bash
# Adapters between hone and PEFT: hone trains some and PEFT loads them, PEFT makes some and hone loads them; logits, losses
# and gradients are compared.
#   scripts/check_peft.sh [PYTHON]   a Python with torch, transformers, peft and safetensors; unless named, a virtual
#                                    environment in $HONE_CACHE or ~/.cache/hone is made and filled once
# HONE_BUILD_DIR names another build folder than build/.
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
echo "peft: adapters go both ways"
