#!/usr/bin/env bash
# Builds and tests under the sanitizers; ends with one line for each.
#   scripts/check_all.sh [asan] [ubsan] [tsan]   none named: all three
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

presets=("$@")
if (($# == 0)); then presets=(asan ubsan tsan); fi

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=()
failures=0
for preset in "${presets[@]}"; do
  settings=()
  # The thread sanitizer does not know libgomp's barriers and would report every parallel loop.
  if [[ $preset == tsan ]]; then settings=(env OMP_NUM_THREADS=1); fi
  if "${settings[@]}" scripts/run_tests.sh "$preset" 2>&1 | tee "$log"; then
    summary+=("$preset: $(tail -n 1 "$log")")
  else
    summary+=("$preset: FAILED: $(tail -n 1 "$log")")
    failures=$((failures + 1))
  fi
done
echo
printf '%s\n' "${summary[@]}"
((failures == 0))
