#!/usr/bin/env bash
# The tests on a busy machine: runs a command several times at the lowest priority beside busy loops of the ordinary
# one. No test may depend on speed.
#   scripts/check_busy.sh [COMMAND ...]   scripts/run_tests.sh release, built before; or ctest --test-dir build-dev, ...
# HONE_BUSY_RUNS (3), HONE_BUSY_LOOPS (two a processor)
# HONE_BUSY_NICE (0): how nice the loops are. The tests have about one second of a processor in 140 beside loops of 0, one
# in 20 beside loops of 10, one in three beside loops of 19.
# Exits with 1 at the first run that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=${HONE_BUSY_RUNS:-3}
loops=${HONE_BUSY_LOOPS:-$((2 * $(nproc)))}
command=("$@")
if (($# == 0)); then
  command=(scripts/run_tests.sh release)
  "${command[@]}" --tests-regex structure.one_clone # for what it builds
fi

loop_ids=()
end_loops() {
  if ((${#loop_ids[@]} > 0)); then kill "${loop_ids[@]}" 2>/dev/null || true; fi
}
trap end_loops EXIT
trap 'exit 130' INT TERM

# They are in the session of the tests: where the kernel shares processors by session first (sched_autogroup_enabled),
# priorities count within one only. They end with this script, even where it is killed.
for ((i = 0; i < loops; ++i)); do
  nice -n "${HONE_BUSY_NICE:-0}" bash -c 'while kill -0 "$1"; do for ((n = 0; n < 1000000; ++n)); do :; done; done' \
    busy-loop $$ 2>/dev/null &
  loop_ids+=($!)
done

for ((run = 1; run <= runs; ++run)); do
  start=$SECONDS
  nice -n 19 "${command[@]}" || {
    echo "busy run $run of $runs, beside $loops loops: FAILED"
    exit 1
  }
  echo "busy run $run of $runs, beside $loops loops: passed in $((SECONDS - start)) s"
done
