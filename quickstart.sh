#!/usr/bin/env bash
# Installs missing packages, builds hone and trains a small reasoning model: data, tokenizer, pre-training, SFT, GRPO.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

scripts/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release --parallel "$(nproc)" --target hone
exec build/hone quickstart "$@"
