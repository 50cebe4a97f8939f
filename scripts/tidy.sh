#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy over the sources of the release build.
#   scripts/tidy.sh [file.cpp ...]   no file named: all of src/
# HONE_BUILD_DIR names another configured build folder than build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-tidy-19 >/dev/null; then
  echo "tidy: clang-tidy-19 is missing; run scripts/setup.sh --dev" >&2
  exit 2
fi
build=${HONE_BUILD_DIR:-build}
if [[ ! -f $build/compile_commands.json ]]; then
  echo "tidy: $build is not configured; run cmake --preset release" >&2
  exit 2
fi
# The commands are g++'s: its omp.h comes last, so that clang's own headers win.
gcc_headers=$(dirname "$(g++ -print-file-name=include/omp.h)")
options=(-p "$build" --quiet --extra-arg=-idirafter"$gcc_headers" --extra-arg=-Wno-unknown-warning-option)
if (($# > 0)); then
  printf '%s\0' "$@"
else
  git ls-files -z --cached --others --exclude-standard -- 'src/*.cpp'
fi | xargs -0 --no-run-if-empty --max-args=1 --max-procs="$(nproc)" clang-tidy-19 "${options[@]}"
