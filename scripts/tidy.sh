#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy on the sources of the release build, each with its compile command.
#   scripts/tidy.sh [src/room/file.cpp ...]   default: all files that the build compiles
#   scripts/tidy.sh --groups                  the groups in which the preset release compiles them: each header once for a
#                                             group, which takes a tenth of the time
#   scripts/tidy.sh --since COMMIT            those of these groups that have a source changed since the commit, or one in
#                                             the folder of a changed header
# Environment: HONE_BUILD_DIR is a configured build folder without HONE_UNITE, for groups one with it. By default the
# script configures build-tidy, for groups build. For the sources of CUDA, use a folder with the preset cuda.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-tidy-19 >/dev/null; then
  echo "tidy: clang-tidy-19 is missing; run scripts/setup.sh --dev" >&2
  exit 2
fi
# The compile commands are for g++. Its include folder with omp.h is searched last, so that clang finds its own headers.
gcc_headers=$(dirname "$(g++ -print-file-name=include/omp.h)")
options=(--quiet --extra-arg=-idirafter"$gcc_headers" --extra-arg=-Wno-unknown-warning-option)

# check FOLDER [OPTION ...]: runs clang-tidy on the files of standard input, each ended by a zero byte.
check() {
  xargs -0 --no-run-if-empty --max-args=1 --max-procs="$(nproc)" clang-tidy-19 -p "$1" "${options[@]}" "${@:2}"
}

if [[ ${1:-} == --groups || ${1:-} == --since ]]; then
  build=${HONE_BUILD_DIR:-build}
  if [[ -z ${HONE_BUILD_DIR:-} ]]; then cmake --preset release >/dev/null; fi
  mapfile -t groups < <(
    sed -n 's|^ *"file": "\(.*/CMakeFiles/hone[a-z_]*\.dir/Unity/unity_[^/]*\)",\{0,1\}$|\1|p' "$build/compile_commands.json" |
      { grep -v /tests/ || true; } | LC_ALL=C sort -u)
  if ((${#groups[@]} == 0)); then
    echo "tidy: $build compiles no groups; configure it with cmake --preset release -B $build" >&2
    exit 2
  fi
  if [[ $1 == --since ]]; then
    commit=${2:?tidy: --since needs a commit}
    changed=$(git diff --name-only "$commit" -- 'src/*.cpp' 'src/*.h' | sed 's|[^/]*\.h$|[^/]*\\.cpp|')
    if [[ -n $changed ]]; then mapfile -t groups < <(grep -l -e "$changed" "${groups[@]}"); fi
    if [[ -z $changed || ${#groups[@]} == 0 ]]; then exit; fi
  fi
  # Groups include sources, which the check of includes would report.
  printf '%s\0' "${groups[@]}" | check "$build" --checks=-bugprone-suspicious-include
  exit
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
# Sources that the build does not compile are left out, because clang-tidy would guess a compile command for them.
mapfile -t sources < <(LC_ALL=C comm -12 \
  <(sed -n 's|^ *"file": ".*/\(src/.*\.cpp\)",\{0,1\}$|\1|p' "$commands" | LC_ALL=C sort -u) \
  <(git ls-files --cached --others --exclude-standard -- 'src/*.cpp' | LC_ALL=C sort))
if (($# > 0)); then
  for file in "$@"; do
    if [[ " ${sources[*]} " != *" $file "* ]]; then
      echo "tidy: $file is not a source of $build; give its path as src/room/file.cpp" >&2
      exit 2
    fi
  done
  sources=("$@")
fi
printf '%s\0' "${sources[@]}" | check "$build"
