#!/usr/bin/env bash
# Lets huggingface_hub push to the small hub of the tests, and compares its requests, and what arrives, with hone's own.
#   scripts/check_hub.sh [PYTHON]   a Python with huggingface_hub; unless named, a virtual environment in $HONE_CACHE or
#                                   ~/.cache/hone is made and filled once
# HONE_BUILD_DIR names another build folder than build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
if [[ ! -x $build/tests/hub_test ]]; then
  echo "hub: $build/tests/hub_test is missing; run ./test.sh first" >&2
  exit 2
fi
python=${1:-}
if [[ -z $python ]]; then
  venv=${HONE_CACHE:-$HOME/.cache/hone}/hub-venv
  python=$venv/bin/python
  # The last that speaks to the hub by requests, as hone does; later ones store large files in chunks (xet) where they can.
  if ! "$python" -c 'import huggingface_hub' 2>/dev/null; then
    python3 -m venv "$venv"
    "$python" -m pip install --quiet 'huggingface_hub==0.30.2'
  fi
fi
HONE_HUB_CLIENT="$python $PWD/scripts/push_with_huggingface_hub.py" "$build/tests/hub_test" \
  --gtest_filter='HubPeer.*' --gtest_brief=1
echo "hub: huggingface_hub and hone ask for the same and leave the same"
