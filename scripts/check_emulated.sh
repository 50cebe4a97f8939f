#!/usr/bin/env bash
# Runs the tests of operations on an emulated GPU (docs/hip.md), in the folder of the release build. It is no part of
# ./test.sh, whose build it would make longer by a sixth.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset release -DHONE_EMULATED_GPU=ON >/dev/null
cmake --build build --target ops_test
ctest --test-dir build --output-on-failure --parallel 2 --no-tests=error -L emulated
