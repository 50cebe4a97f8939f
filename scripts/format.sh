#!/usr/bin/env bash
# Checks the formatting of the sources against .clang-format. With --fix, reformats them.
#   scripts/format.sh [--fix] [file ...]   default: all files
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(--dry-run -Werror)
if [[ ${1:-} == --fix ]]; then
  mode=(-i)
  shift
fi
if ! command -v clang-format-19 >/dev/null; then
  echo "format: clang-format-19 is missing; run scripts/setup.sh --dev" >&2
  exit 2
fi
if (($# > 0)); then
  printf '%s\0' "$@"
else
  git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.h' '*.cu' '*.cuh'
fi | xargs -0 --no-run-if-empty clang-format-19 "${mode[@]}"
