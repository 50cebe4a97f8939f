#!/usr/bin/env bash
# Checks hone chat --server in a terminal: tmux types, and what its screen shows is compared. The server is a small one in
# scripts/check_chat.py that thinks, answers, stops in the middle and goes away.
#   scripts/check_chat.sh
# Needs tmux and python3. Environment: HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hone=${HONE_BUILD_DIR:-build}/hone
if [[ ! -x $hone ]]; then
  echo "chat: $hone is missing; build it first" >&2
  exit 2
fi
if ! command -v tmux >/dev/null; then
  echo "chat: tmux is missing; run apt-get install tmux" >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 scripts/check_chat.py "$(realpath "$hone")" "$folder"
