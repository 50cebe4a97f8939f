#!/usr/bin/env bash
# Checks the page of hone watch in headless Chromium: writes runs as a training process does, while the page shows them.
#   scripts/check_watch.sh [FOLDER]   FOLDER: where pictures of the page are written
# Needs Debian's package chromium. Environment: HONE_CHECK_DIR (build/check-page) is the folder of the virtual
# environment that the script creates; HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
check=${HONE_CHECK_DIR:-$build/check-page}
hone=$build/hone
if [[ ! -x $hone ]]; then
  echo "watch: $hone is missing; build it first" >&2
  exit 2
fi
if ! command -v chromium >/dev/null; then
  echo "watch: chromium is missing; run apt-get install chromium" >&2
  exit 2
fi
if [[ ! -x $check/venv/bin/python ]]; then
  python3 -m venv "$check/venv"
  "$check/venv/bin/pip" install -q websockets
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$check/venv/bin/python" scripts/check_watch.py "$hone" "$folder" "${1:-}"
