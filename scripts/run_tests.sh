#!/usr/bin/env bash
# Configures, builds and tests one preset of CMakePresets.json. Ends with the line "N passed, N failed".
#   scripts/run_tests.sh PRESET [ctest options]
# Environment: HONE_BUILD_ROOT (the checkout) contains the build folders.
# Exits with 1 if a test failed or could not start, or if no test ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# == 0)); then
  echo "usage: scripts/run_tests.sh PRESET [ctest options]" >&2
  exit 2
fi
preset=$1
shift

build=${HONE_BUILD_ROOT:-$PWD}/build
if [[ $preset != release ]]; then build+=-$preset; fi
cmake --preset "$preset" -B "$build"
cmake --build "$build" --parallel "$(nproc)"  # more than processors takes 10% longer

report=$(mktemp)
folder=
trap 'rm -f "$report"; rm -rf "$folder"' EXIT

# Tests sync thousands of small files. They write them to memory where /dev/shm runs programs and has room (a run of all
# tests needs less than 1 GB at a time), which saves the waits for a disk; TMPDIR names another folder.
if [[ -z ${TMPDIR:-} ]] && folder=$(mktemp --directory /dev/shm/hone-tests-XXXXXX 2>/dev/null); then
  chmod 1777 "$folder"  # as /tmp: some tests run programs of other users
  printf '#!/bin/sh\n' >"$folder/program"
  chmod +x "$folder/program"
  free_kib=$(df --output=avail "$folder" | tail -n 1)
  if ((free_kib > 4 << 20)) && "$folder/program" 2>/dev/null; then export TMPDIR=$folder; fi
fi
status=0
# Twice as many tests as processors: some wait for limits and for each other's ranks (nproc + 1 left processors idle for
# 10 to 20% of the time).
ctest --test-dir "$build" --output-on-failure --parallel $((2 * $(nproc))) --no-tests=error --output-junit "$report" "$@" || status=$?

# count NAME: prints the value of an attribute of the report's first element, 0 if it is missing. ctest writes no
# attributes if it found no test.
count() {
  local value
  value=$(sed -n "s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n 1)
  echo "${value:-0}"
}
total=$(count tests)
failed=$(count failures)
skipped=$(($(count skipped) + $(count disabled)))
# The report also lists a test that could not be started as skipped, with another message than a test that skips itself.
not_started=$(grep '<skipped message=' "$report" | grep -cv 'message="SKIP_' || true)
failed=$((failed + not_started))
skipped=$((skipped - not_started))
passed=$((total - failed - skipped))

if ((total == 0)); then echo "no test ran"; fi
if ((skipped > 0)); then echo "$skipped skipped"; fi
echo "$passed passed, $failed failed"
((status == 0 && failed == 0 && passed > 0))
