#!/usr/bin/env bash
# Compares hone's mathematical equality with Math-Verify 0.9: counts the gold answers that equal the answer extracted
# from their own solution, and the agreement on 3,000 pairs of answers made from them. Lists every disagreement and ends
# with the number of comparisons per second.
#   scripts/check_math.sh DATA [OUT]
# DATA contains math500_test.jsonl, aime24_test.jsonl and gsm8k_test.jsonl. OUT (math-reference in the build folder)
# stores the verdicts of the reference, which are computed once and take minutes.
# Environment: PYTHON (python3) is a Python with math-verify 0.9.0; HONE_BUILD (build) is a configured build folder.
set -euo pipefail
if (($# < 1 || $# > 2)); then
  echo "usage: scripts/check_math.sh DATA [OUT]" >&2
  exit 2
fi
data=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${HONE_BUILD:-build}
out=${2:-$build/math-reference}
python=${PYTHON:-python3}

cmake --build "$build" --target math_equality
if [[ ! -f $out/own.jsonl || ! -f $out/pairs.jsonl ]]; then
  if ! "$python" -c 'import math_verify' 2>/dev/null; then
    echo "check_math: $python has no math-verify; run pip install math-verify==0.9.0, or set PYTHON" >&2
    exit 1
  fi
  "$python" tests/fixtures/math_equality/make_math_pairs.py "$data" "$out"
fi
echo "== gold answers against their own solutions"
"$build/math_equality" "$out/own.jsonl" 0 1
echo "== pairs"
"$build/math_equality" "$out/pairs.jsonl" 0 5
