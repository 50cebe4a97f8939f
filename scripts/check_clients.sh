#!/usr/bin/env bash
# Checks hone serve with clients that others have written: starts a server with a small model and sends it requests with
# the official Python clients and LangChain, reads /metrics with Prometheus' parser, and has schemathesis send requests
# that it derives from /openapi.json, valid ones and others, of which none may get a 5xx.
#   scripts/check_clients.sh
# Environment: HONE_CHECK_DIR (build/check-clients) is the folder of the virtual environment that the script creates;
# HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
check=${HONE_CHECK_DIR:-$build/check-clients}
hone=$build/hone
if [[ ! -x $hone ]]; then
  echo "clients: $hone is missing; build it first" >&2
  exit 2
fi
if [[ ! -x $check/venv/bin/python ]]; then
  python3 -m venv "$check/venv"
  "$check/venv/bin/pip" install -q openai anthropic langchain-openai prometheus_client schemathesis
fi

folder=$(mktemp -d)
server=
cleanup() {
  if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap cleanup EXIT

for i in {1..200}; do
  echo "{\"text\": \"What is $i + 2? The answer is $((i + 2)). naïve 日本 🙂\"}"
done >"$folder/corpus.jsonl"
cat >"$folder/model.json" <<'JSON'
{"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.3}
JSON
"$hone" tokenizer train --input "$folder/corpus.jsonl" --vocab_size 340 --eos_token "<|endoftext|>" \
  --special_tokens "<|endoftext|>,<|im_start|>,<|im_end|>" --output "$folder/tokenizer" >/dev/null 2>&1
"$hone" pretrain --model_config_path "$folder/model.json" --tokenizer_name_or_path "$folder/tokenizer" --max_steps 1 \
  --dataset_name "$folder/corpus.jsonl" --block_size 64 --per_device_train_batch_size 2 \
  --output_dir "$folder/model" >/dev/null 2>&1

# Answers of requests without max_tokens are short, too.
echo '{"max_new_tokens": 32}' >"$folder/model/generation_config.json"
touch "$folder/log"
"$hone" serve "$folder/model" --served_model_name small --port 0 --api_key secret --max_model_len 512 \
  --embeddings mean 2>"$folder/log" &
server=$!
until url=$(grep -oE -m1 'http://[0-9.:]+' "$folder/log"); do
  kill -0 "$server" || { cat "$folder/log" >&2; exit 1; }
  sleep 0.1
done
"$check/venv/bin/python" scripts/check_clients.py "$url" small secret
schemathesis=$(realpath "$check")/venv/bin/schemathesis
cd "$folder"  # it leaves a folder behind
"$schemathesis" run "$url/openapi.json" --header "Authorization: Bearer secret" \
  --checks not_a_server_error --max-examples "${HONE_EXAMPLES:-30}" --seed 1 --workers 2 --request-timeout 60
