#!/usr/bin/env bash
# Profiles recipes that are each set badly in one way, follows the first advice, and prints the gain that was predicted
# next to the gain of real training runs.
#   scripts/check_advice.sh [CASE ...]   default: all cases of scripts/check_advice.py
# Run it on an idle machine. Environment: HONE_BUILD_DIR (build) is the build folder; HONE_REPEATS (3) the runs of each
# recipe, of which the median counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 scripts/check_advice.py "$build/hone" "$folder" "$@"
