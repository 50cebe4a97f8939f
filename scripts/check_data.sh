#!/usr/bin/env bash
# Reads random tables that pyarrow has written, as Parquet and as Arrow in all their encodings, and compares the rows.
#   scripts/check_data.sh [PYTHON]   a Python with pyarrow; python3 unless named
# HONE_TABLES says how many tables (40, each in eleven files); HONE_BUILD_DIR names another build folder than build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:-python3}
build=${HONE_BUILD_DIR:-build}
if ! "$python" -c 'import pyarrow' 2>/dev/null; then
  echo "data: skipped: $python has no pyarrow"
  exit 0
fi
if [[ ! -x $build/tests/data_test ]]; then
  echo "data: $build/tests/data_test is missing; run ./test.sh first" >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" tests/fixtures/data/make_tables.py "$folder" "${HONE_TABLES:-40}"
HONE_TEST_TABLES=$folder "$build/tests/data_test" --gtest_filter='Tables.EveryFile*' --gtest_brief=1
