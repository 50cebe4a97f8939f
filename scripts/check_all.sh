#!/usr/bin/env bash
# Builds and tests under the sanitizers, and runs the fuzz targets; ends with one line for each.
#   scripts/check_all.sh [asan] [ubsan] [tsan] [fuzz]   none named: asan (undefined behaviour with it), tsan and fuzz
# HONE_BUILD_ROOT names another place for the build folders than the checkout; HONE_FUZZ_SECONDS (60) is how long each
# fuzz target runs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

presets=("$@")
if (($# == 0)); then presets=(asan tsan fuzz); fi

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

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
