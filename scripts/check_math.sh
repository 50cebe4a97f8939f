#!/usr/bin/env bash
# Mathematical equality against Math-Verify 0.9: how many golds equal themselves taken from their own solutions, and the
# agreement over 3,000 pairs made from them, every disagreement listed; ends with comparisons a second.
#   scripts/check_math.sh DATA [OUT]
# DATA holds math500_test.jsonl, aime24_test.jsonl and gsm8k_test.jsonl; OUT (math-reference in the build folder) keeps the reference's
# verdicts, which take minutes and are made once. PYTHON (python3) must have math-verify 0.9.0. HONE_BUILD names a
# configured build folder (build).
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
    echo "check_math: $python has no math-verify; pip install math-verify==0.9.0, or set PYTHON" >&2
    exit 1
  fi
  "$python" tests/fixtures/math_equality/make_math_pairs.py "$data" "$out"
fi
echo "== golds against their own solutions"
"$build/math_equality" "$out/own.jsonl" 0 1
echo "== pairs"
"$build/math_equality" "$out/pairs.jsonl" 0 5
