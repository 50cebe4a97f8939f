#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz and runs them, starting from the committed inputs and those that earlier runs
# found. Ends with the line "N targets, N seconds each, N findings".
#   scripts/run_fuzzers.sh [NAME ...]   default: all targets
# Environment: HONE_FUZZ_SECONDS (60) is the time for each target, HONE_JOBS (the number of cores) the number of targets
# that run concurrently, HONE_FUZZ_FOLDER (the folder found in the build folder) stores new inputs and inputs that fail,
# and HONE_BUILD_ROOT (the checkout) contains the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${HONE_FUZZ_SECONDS:-60}
build=${HONE_BUILD_ROOT:-$PWD}/build-fuzz
kept=${HONE_FUZZ_FOLDER:-$build/found}
if ! command -v clang++-19 >/dev/null; then
  echo "run_fuzzers: clang-19 is missing; run scripts/setup.sh --dev" >&2
  exit 2
fi
cmake --preset fuzz -B "$build"
cmake --build "$build" --target fuzz

names=("$@")
if ((${#names[@]} == 0)); then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" _fuzz.cpp)"); done
fi
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:detect_leaks=1
export UBSAN_OPTIONS=print_stacktrace=1

# -timeout: a template that uses the allowed ten million steps takes 0.4 s in a release build, but 20 s in this
# instrumented build on a busy core.
fuzz() {
  local name=$1 log status=0
  log=$(mktemp)
  mkdir -p "$kept/$name"
  "$build/fuzz/${name}_fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=120 -rss_limit_mb=2048 \
    -malloc_limit_mb=1024 -artifact_prefix="$kept/$name-" "$kept/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || status=$?
  if ((status == 0)); then
    echo "$name: $(grep -E '^Done [0-9]+ runs' "$log" || echo "no new runs")"
  else
    echo "$(tail -n 60 "$log")"$'\n'"$name: FAILED"
  fi
  rm -f "$log"
}
export -f fuzz
export build kept seconds

report=$(mktemp)
trap 'rm -f "$report"' EXIT
printf '%s\n' "${names[@]}" | xargs -P "${HONE_JOBS:-$(nproc)}" -I{} bash -c 'fuzz "$1"' _ {} | tee "$report"
findings=$(grep -c ': FAILED$' "$report" || true)
echo "${#names[@]} targets, $seconds seconds each, $findings findings"
((findings == 0))
