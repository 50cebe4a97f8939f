#!/usr/bin/env bash
# Builds hone with each sanitizer, runs the tests, and runs the fuzz targets. The last lines give the result of each.
#   scripts/check_all.sh [asan] [ubsan] [tsan] [fuzz]   default: asan (which includes undefined behaviour), tsan, fuzz
# Environment: HONE_BUILD_ROOT (the checkout) contains the build folders; HONE_FUZZ_SECONDS (60) is the time for each
# fuzz target.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

presets=("$@")
if (($# == 0)); then presets=(asan tsan fuzz); fi

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/scripts/tsan_suppressions.txt

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=()
failures=0
for preset in "${presets[@]}"; do
  check=(scripts/run_tests.sh "$preset")
  if [[ $preset == fuzz ]]; then check=(scripts/run_fuzzers.sh); fi
  if "${check[@]}" 2>&1 | tee "$log"; then
    summary+=("$preset: $(tail -n 1 "$log")")
  else
    summary+=("$preset: FAILED: $(tail -n 1 "$log")")
    failures=$((failures + 1))
  fi
done
echo
printf '%s\n' "${summary[@]}"
((failures == 0))
