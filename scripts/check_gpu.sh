#!/usr/bin/env bash
# Runs the tests of a CUDA build on the GPU, or the operations and one training step under a tool of compute-sanitizer.
# Prints one line for each failure and ends with the line "N suites or tests, N failed".
#   scripts/check_gpu.sh BUILD [tests|memcheck|racecheck|initcheck|synccheck] [SUITE ...]
# SUITE names GoogleTest suites of ops_test. Without it, all suites run; those of ops_test and one test of train_test
# under a sanitizer. Named suites and suites under a sanitizer run test by test, others as a whole.
#
# Environment: HONE_JOBS (8) is the number of suites or tests that run concurrently, HONE_SECONDS (600) the time limit
# of each, and HONE_LOGS (a temporary folder) the folder of their logs.
set -uo pipefail

if (($# < 1)); then
  echo "usage: scripts/check_gpu.sh BUILD [tests|memcheck|racecheck|initcheck|synccheck] [SUITE ...]" >&2
  exit 2
fi
build=$1
tool=${2:-tests}
shift $(($# < 2 ? 1 : 2))
jobs=${HONE_JOBS:-8}
seconds=${HONE_SECONDS:-600}
logs=${HONE_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
export HONE_TEST_DEVICE=cuda

suites_of() { "$build/tests/$1" --gtest_list_tests | sed -n 's/^\([A-Za-z].*\)\.$/\1/p;s/^\([A-Za-z].*\)\.  #.*/\1/p'; }

# Units of work, each "PROGRAM FILTER".
work=()
# Adds the tests of ops_test that match a filter.
add_tests() {
  local test
  while read -r test; do work+=("ops_test $test"); done < <(
    "$build/tests/ops_test" --gtest_list_tests --gtest_filter="$1" |
      awk '/^[A-Za-z]/ { sub(/ .*/, ""); suite = $0 } /^ / { print suite $1 }'
  )
}
if (($# > 0)); then
  for suite in "$@"; do add_tests "$suite.*:*/$suite.*"; done
elif [[ $tool == tests ]]; then
  for program in program_test ops_test train_test rl_test planner_test cli_test; do
    [[ -x $build/tests/$program ]] || continue
    for suite in $(suites_of "$program"); do work+=("$program $suite.*"); done
  done
else
  add_tests '*'
  work+=("train_test Exactness.OffloadChangesMemoryAndNoBit")
fi

check() {
  local program=${1%% *} filter=${1#* } log status=0
  log=$logs/$program-${filter//[^A-Za-z0-9]/_}.log
  local command=("$build/tests/$program" "--gtest_filter=$filter" --gtest_brief=1)
  if [[ $tool != tests ]]; then
    # racecheck takes minutes for a GEMM of cuBLAS, so it checks only kernels in the namespace hone.
    local filter_kernels=()
    if [[ $tool == racecheck ]]; then filter_kernels=(--kernel-name kernel_substring=4hone); fi
    command=(compute-sanitizer --tool "$tool" "${filter_kernels[@]}" --error-exitcode 9 --print-limit 5 "${command[@]}")
  fi
  timeout "$seconds" "${command[@]}" >"$log" 2>&1 || status=$?
  # compute-sanitizer fails for tests that do not use the GPU.
  if grep -q 'terminated before first instrumented API call' "$log" && ! grep -q FAILED "$log"; then status=0; fi
  if ((status != 0)); then
    echo "FAILED ($status) $program $filter: $(grep -m1 -E 'Failure|=========.*(Error|error|Invalid|Race|hazard|Uninit)' "$log" || tail -n 1 "$log")"
  fi
}
export -f check
export build tool seconds logs

report=$(printf '%s\n' "${work[@]}" | xargs -d '\n' -P "$jobs" -I{} bash -c 'check "$1"' _ {})
failed=0
if [[ -n $report ]]; then
  printf '%s\n' "$report" | sort
  failed=$(printf '%s\n' "$report" | wc -l)
fi
echo "${#work[@]} suites or tests, $failed failed"
((failed == 0))
