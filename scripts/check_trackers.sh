#!/usr/bin/env bash
# Checks the trackers: reads the files that a run wrote for TensorBoard and wandb with the readers of those tools, and
# compares each value with metrics.jsonl.
#   scripts/check_trackers.sh
# Environment: HONE_CHECK_DIR (build/check-trackers) is the folder of the virtual environment that the script creates;
# HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
check=${HONE_CHECK_DIR:-$build/check-trackers}
hone=$build/hone
if [[ ! -x $hone ]]; then
  echo "trackers: $hone is missing; build it first" >&2
  exit 2
fi
# wandb 0.19 still has a reader of its files in Python.
if [[ ! -x $check/venv/bin/python ]]; then
  python3 -m venv "$check/venv"
  "$check/venv/bin/pip" install -q 'wandb==0.19.11' 'tensorboard==2.19.*' 'protobuf<6' 'setuptools<81'
fi

run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
head -c 20000 README.md > "$run/corpus.txt"
"$hone" tokenizer train --input "$run/corpus.txt" --vocab_size 300 --special_tokens '<|endoftext|>' \
  --eos_token '<|endoftext|>' --output "$run/tokenizer" 2> "$run/log"
cat > "$run/model.json" <<'JSON'
{"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "tie_word_embeddings": true}
JSON
train() {
  "$hone" pretrain --model_config_path "$run/model.json" --tokenizer_name_or_path "$run/tokenizer" \
    --dataset_name "$run/corpus.txt" --test_split_size 0.2 --block_size 64 --logging_steps 1 --eval_strategy steps \
    --eval_steps 5 --save_steps 10 --report_to tensorboard,wandb --wandb_project hone-check --wandb_run_group group \
    --run_name 'trial 7' --device cpu --output_dir "$run/out" "$@" 2>> "$run/log"
}
# The run reports 20 steps, then resumes from step 10 and reports up to step 30.
train --max_steps 20
rm -r "$run/out/checkpoint-20"
train --max_steps 30
# The key is invalid, because nothing is sent.
WANDB_API_KEY=$(printf '0%.0s' {1..40}) "$check/venv/bin/python" scripts/check_trackers.py "$run/out"
