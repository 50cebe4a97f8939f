#!/usr/bin/env bash
# Installs missing packages, builds hone (release, CPU) and runs all tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

scripts/setup.sh
exec scripts/run_tests.sh release "$@"
