#!/usr/bin/env bash
# Runs the tests on a busy machine, because no test may depend on speed: runs a command several times at the lowest
# priority while busy loops run at normal priority.
#   scripts/check_busy.sh [COMMAND ...]   default: scripts/run_tests.sh release, after a build
# Environment: HONE_BUSY_RUNS (3) is the number of runs, HONE_BUSY_LOOPS (two per processor) that of the loops, and
# HONE_BUSY_NICE (0) the nice value of the loops. The tests get about 1/140 of a processor with loops at nice 0, 1/20
# at nice 10 and 1/3 at nice 19.
# Exits with 1 at the first run that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=${HONE_BUSY_RUNS:-3}
loops=${HONE_BUSY_LOOPS:-$((2 * $(nproc)))}
command=("$@")
if (($# == 0)); then
  command=(scripts/run_tests.sh release)
  "${command[@]}" --tests-regex structure.one_clone # builds everything, and runs only this test
fi

loop_ids=()
end_loops() {
  if ((${#loop_ids[@]} > 0)); then kill "${loop_ids[@]}" 2>/dev/null || true; fi
}
trap end_loops EXIT
trap 'exit 130' INT TERM

# The loops are in the same session as the tests. With sched_autogroup_enabled the kernel first divides the processors
# among sessions, and priorities count only within a session. Each loop ends with this script, even if it is killed.
for ((i = 0; i < loops; ++i)); do
  nice -n "${HONE_BUSY_NICE:-0}" bash -c 'while kill -0 "$1"; do for ((n = 0; n < 1000000; ++n)); do :; done; done' \
    busy-loop $$ 2>/dev/null &
  loop_ids+=($!)
done

for ((run = 1; run <= runs; ++run)); do
  start=$SECONDS
  nice -n 19 "${command[@]}" || {
    echo "busy run $run of $runs, with $loops busy loops: FAILED"
    exit 1
  }
  echo "busy run $run of $runs, with $loops busy loops: passed in $((SECONDS - start)) s"
done
