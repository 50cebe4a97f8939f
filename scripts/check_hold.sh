#!/usr/bin/env bash
# Checks what hone serve must hold, at full size: 2,000 concurrent streams with slow readers and dropped connections,
# 100,000 requests with flat memory, 20,000 hostile requests next to other streams, and a KV cache that is too small.
# The same tests are in serve_test, smaller. Prints what was counted.
#   scripts/check_hold.sh
# Environment: HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
if [[ ! -x $build/tests/serve_test ]]; then
  echo "hold: $build/tests/serve_test is missing; build it first" >&2
  exit 2
fi
HONE_HOLD=full "$build/tests/serve_test" --gtest_filter='Hold.*'
