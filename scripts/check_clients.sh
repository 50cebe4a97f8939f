#!/usr/bin/env bash
# Checks hone serve with clients that others have written: starts servers with a small model and sends requests with the
# official Python clients, LangChain, lm-eval, TRL's VLLMClient and what open-r1's scripts send, reads /metrics with
# Prometheus' parser, and has schemathesis send requests that it derives from /openapi.json, valid ones and others, of
# which none may get a 5xx.
#   scripts/check_clients.sh
# Environment: HONE_CHECK_DIR (build/check-clients) is the folder of the virtual environment that the script creates, with
# trl, which brings torch, and distilabel if HONE_CHECK_ALL is 1 (otherwise their checks are skipped); HONE_BUILD_DIR
# (build) is the build folder.
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
  "$check/venv/bin/pip" install -q openai anthropic langchain-openai prometheus_client schemathesis "lm_eval[api]" \
    transformers
  if [[ ${HONE_CHECK_ALL:-0} == 1 ]]; then "$check/venv/bin/pip" install -q trl distilabel; fi
fi

folder=$(mktemp -d)
servers=()
cleanup() {
  for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
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

# start NAME OPTION...: starts a server and sets url.
start() {
  local log=$folder/$1
  touch "$log"
  "$hone" serve "$folder/model" --served_model_name small --port 0 --max_model_len 512 "${@:2}" 2>"$log" &
  servers+=($!)
  until url=$(grep -oE -m1 'http://[0-9.:]+' "$log"); do
    kill -0 "${servers[-1]}" || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
}
start open --allow_weight_updates
open=$url
start keyed --api_key secret --embeddings mean
# Both sides of the store at which a trainer and the server meet, next to torch's, if the package trl has brought it.
if [[ -x $build/tests/rendezvous_test ]] && "$check/venv/bin/python" -c 'import torch' 2>/dev/null; then
  HONE_TEST_TORCH=$check/venv/bin/python "$build/tests/rendezvous_test" --gtest_filter='TorchStore.*' --gtest_brief=1
else
  echo "clients: torch (HONE_CHECK_ALL=1) or rendezvous_test is missing; the store is not checked" >&2
fi
"$check/venv/bin/python" scripts/check_clients.py "$url" small secret "$open" "$folder/model"
schemathesis=$(realpath "$check")/venv/bin/schemathesis
cd "$folder"  # it leaves a folder behind
"$schemathesis" run "$url/openapi.json" --header "Authorization: Bearer secret" \
  --checks not_a_server_error --max-examples "${HONE_EXAMPLES:-30}" --seed 1 --workers 2 --request-timeout 60
