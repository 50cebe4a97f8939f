#!/usr/bin/env bash
# Checks the data readers: pyarrow writes random tables as Parquet and Arrow in all encodings, and hone must read the
# same rows.
#   scripts/check_data.sh [PYTHON]   a Python with pyarrow; default python3
# Environment: HONE_TABLES (40) is the number of tables, each in eleven files; HONE_BUILD_DIR (build) is the build
# folder.
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
