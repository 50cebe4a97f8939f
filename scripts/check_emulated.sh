#!/usr/bin/env bash
# Runs the tests of operations and of an engine's inputs on an emulated GPU (docs/hip.md), in the folder of the release
# build. It is no part of ./test.sh, whose build it would make longer by a sixth.
# Environment: HONE_BUILD_ROOT (the checkout) contains the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_ROOT:-$PWD}/build
cmake --preset release -B "$build" -DHONE_EMULATED_GPU=ON >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target ops_test engine_test
ctest --test-dir "$build" --output-on-failure --parallel 2 --no-tests=error -L emulated
