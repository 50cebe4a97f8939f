#!/usr/bin/env bash
# Checks the page of hone serve in headless Chromium: starts a server with a small model and uses its page.
#   scripts/check_page.sh [FOLDER]   FOLDER: where pictures of the page are written
# Needs Debian's package chromium. Environment: HONE_CHECK_DIR (build/check-page) is the folder of the virtual
# environment that the script creates; HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
check=${HONE_CHECK_DIR:-$build/check-page}
hone=$build/hone
if [[ ! -x $hone ]]; then
  echo "page: $hone is missing; build it first" >&2
  exit 2
fi
if ! command -v chromium >/dev/null; then
  echo "page: chromium is missing; run apt-get install chromium" >&2
  exit 2
fi
if [[ ! -x $check/venv/bin/python ]]; then
  python3 -m venv "$check/venv"
  "$check/venv/bin/pip" install -q websockets
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for i in {1..200}; do
  echo "{\"text\": \"What is $i + 2? The answer is $((i + 2)). naïve 日本 🙂\"}"
done >"$folder/corpus.jsonl"
cat >"$folder/model.json" <<'JSON'
{"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.3}
JSON
"$hone" tokenizer train --input "$folder/corpus.jsonl" --vocab_size 340 --eos_token "<|endoftext|>" \
  --special_tokens "<|endoftext|>,<|im_start|>,<|im_end|>" --output "$folder/tokenizer" >/dev/null 2>&1
"$hone" pretrain --model_config_path "$folder/model.json" --tokenizer_name_or_path "$folder/tokenizer" --max_steps 1 \
  --dataset_name "$folder/corpus.jsonl" --block_size 64 --per_device_train_batch_size 2 \
  --output_dir "$folder/model" >/dev/null 2>&1
"$check/venv/bin/python" scripts/check_page.py "$hone" "$folder" "${1:-}"
