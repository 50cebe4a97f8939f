#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy over the sources of the release build, each with the command that compiles it.
#   scripts/tidy.sh [src/room/file.cpp ...]   no file named: all that the build compiles
# It configures build-tidy/ for that. HONE_BUILD_DIR names a configured folder instead, without HONE_UNITE: of the preset
# cuda for the sources of CUDA.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-tidy-19 >/dev/null; then
  echo "tidy: clang-tidy-19 is missing; run scripts/setup.sh --dev" >&2
  exit 2
fi
build=${HONE_BUILD_DIR:-build-tidy}
if [[ -z ${HONE_BUILD_DIR:-} ]]; then
  cmake --preset release -B "$build" -DHONE_UNITE=OFF >/dev/null
fi
commands=$build/compile_commands.json
if [[ ! -f $commands ]]; then
  echo "tidy: $build is not configured; run cmake --preset release -B $build -DHONE_UNITE=OFF" >&2
  exit 2
fi
if grep -q '"file": ".*/unity_[^/]*"' "$commands"; then
  echo "tidy: $build compiles sources in groups; configure it with -DHONE_UNITE=OFF" >&2
  exit 2
fi
# What the build does not compile has no command: clang-tidy would guess one.
mapfile -t sources < <(LC_ALL=C comm -12 \
  <(sed -n 's|^ *"file": ".*/\(src/.*\.cpp\)",\{0,1\}$|\1|p' "$commands" | LC_ALL=C sort -u) \
  <(git ls-files --cached --others --exclude-standard -- 'src/*.cpp' | LC_ALL=C sort))
if (($# > 0)); then
  for file in "$@"; do
    if [[ " ${sources[*]} " != *" $file "* ]]; then
      echo "tidy: $file is no source of $build; name one as src/room/file.cpp" >&2
      exit 2
    fi
  done
  sources=("$@")
fi
# The commands are g++'s: its omp.h comes last, so that clang's own headers win.
gcc_headers=$(dirname "$(g++ -print-file-name=include/omp.h)")
options=(-p "$build" --quiet --extra-arg=-idirafter"$gcc_headers" --extra-arg=-Wno-unknown-warning-option)
printf '%s\0' "${sources[@]}" |
  xargs -0 --no-run-if-empty --max-args=1 --max-procs="$(nproc)" clang-tidy-19 "${options[@]}"
