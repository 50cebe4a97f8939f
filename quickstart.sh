#!/usr/bin/env bash
# Sets up what is missing, builds hone and runs the whole recipe in miniature: text, tokenizer, pre-training, SFT, GRPO.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

scripts/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release --target hone
exec build/hone quickstart "$@"
