#!/usr/bin/env bash
# Compares hone with huggingface_hub: both push to the hub of the tests, and their requests and the files that arrive
# must be the same.
#   scripts/check_hub.sh [PYTHON]   a Python with huggingface_hub; by default the script creates a virtual environment
#                                   in $HONE_CACHE or ~/.cache/hone, once
# Environment: HONE_BUILD_DIR (build) is the build folder.
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
  # The last version that uploads large files by LFS requests, as hone does. Later ones prefer chunked storage (Xet).
  if ! "$python" -c 'import huggingface_hub' 2>/dev/null; then
    python3 -m venv "$venv"
    "$python" -m pip install --quiet 'huggingface_hub==0.30.2'
  fi
fi
HONE_HUB_CLIENT="$python $PWD/scripts/push_with_huggingface_hub.py" "$build/tests/hub_test" \
  --gtest_filter='HubPeer.*' --gtest_brief=1
echo "hub: huggingface_hub and hone send the same requests and the same files"
