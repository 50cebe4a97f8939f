#!/usr/bin/env bash
# Checks that two builds of hone compute the same bits: both do the same runs, and their weights, losses, samples and
# plans are compared. Use it for refactorings, which must not change any number.
#   scripts/check_same_runs.sh OLD NEW [--device cuda]   paths of the two programs
# Prints one line for each run and exits with 1 if any differs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

if (($# < 2)); then
  echo "usage: scripts/check_same_runs.sh OLD NEW [--device cuda]" >&2
  exit 2
fi
old=$(realpath "$1")
new=$(realpath "$2")
shift 2
device=cpu
if [[ ${1:-} == --device ]]; then device=$2; fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
different=0

# Data and shapes of models, which both programs use.
cat docs/architecture.md docs/performance.md > "$root/text.txt"
for ((i = 0; i < 64; ++i)); do
  printf '{"messages":[{"role":"user","content":"What is %d + %d?"},{"role":"assistant","content":"It is %d."}]}\n' \
    $((i % 9)) $((i / 9)) $((i % 9 + i / 9)) >> "$root/chats.jsonl"
  printf '{"problem":"What is %d + %d?","answer":"%d"}\n' $((i % 9)) $((i / 9)) $((i % 9 + i / 9)) \
    >> "$root/prompts.jsonl"
done
cat > "$root/qwen3.json" << 'JSON'
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 128, "head_dim": 64, "intermediate_size": 352,
 "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"}
JSON
cat > "$root/gpt2.json" << 'JSON'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 128, "n_layer": 3, "n_head": 2, "n_positions": 256,
 "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.0, "activation_function": "gelu_new"}
JSON
"$old" tokenizer train --input "$root/text.txt" "$root/chats.jsonl" --type qwen2 --vocab_size 512 --special_tokens \
  '<|endoftext|>' '<|im_start|>' '<|im_end|>' --eos_token '<|endoftext|>' --output "$root/tokenizer" > /dev/null || exit 2

# Prints the metrics of a run that must be equal; times and rates are left out.
figures() {
  [[ -f $1/metrics.jsonl ]] || return 0
  grep -oE '"(step|loss|eval_loss|grad_norm|reward|rewards/[a-z_/]*|kl|entropy|completions/[a-z_/]*)": ?[^,}]*' \
    "$1/metrics.jsonl"
}

# equal FILE: succeeds if both runs have the file with the same bytes, or neither has it.
equal() {
  if [[ -e $root/old/$1 || -e $root/new/$1 ]]; then cmp -s "$root/old/$1" "$root/new/$1"; fi
}

# both NAME COMMAND [keys]: runs a command with both programs, into $root/old/NAME and $root/new/NAME, and compares the
# results. In the keys, @/NAME is the folder of an earlier run of the same program.
both() {
  local name=$1 command=$2 which program result=same
  shift 2
  for which in old new; do
    program=$old
    if [[ $which == new ]]; then program=$new; fi
    (cd "$root/$which" && "$program" "$command" "${@//@\//$root/$which/}" --output_dir "$name" --device "$device") \
      > "$root/$which/$name.log" 2>&1 || {
      result="$which failed: $(tail -n 1 "$root/$which/$name.log")"
      break
    }
  done
  if [[ $result == same ]]; then
    for file in model.safetensors adapter_model.safetensors samples.jsonl generations.jsonl completions/step-2.jsonl; do
      equal "$name/$file" || result="DIFFERENT $file"
    done
    diff -q <(figures "$root/old/$name") <(figures "$root/new/$name") > /dev/null || result="DIFFERENT figures"
  fi
  report "$name" "$result" "$(figures "$root/new/$name" | grep -E '^"(loss|reward)"' | tail -n 1)"
}

report() {
  printf '%-28s %s  %s\n' "$1" "$2" "${3:-}"
  if [[ $2 != same ]]; then different=$((different + 1)); fi
}

# plan NAME COMMAND [keys]: compares the bytes in the plans of both programs.
plan() {
  local name=$1 which program
  shift
  for which in old new; do
    program=$old
    if [[ $which == new ]]; then program=$new; fi
    (cd "$root/$which" && "$program" plan "${@//@\//$root/$which/}" --output_dir planned --device "$device") \
      2> /dev/null | sed -n -E 's/.* ([0-9,]+ bytes)$/\1/p' > "$root/$which/$name.plan"
  done
  if [[ -s $root/new/$name.plan ]] && cmp -s "$root/old/$name.plan" "$root/new/$name.plan"; then
    report "$name" same "$(tail -n 1 "$root/new/$name.plan") in the last line"
  else
    report "$name" "DIFFERENT plan"
  fi
}

mkdir "$root/old" "$root/new"
base=(--tokenizer_name_or_path "$root/tokenizer" --dataset_name "$root/text.txt" --block_size 128 --learning_rate 1e-3
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_steps 6 --logging_steps 1 --seed 7
  --save_steps 3)
qwen=(--model_config_path "$root/qwen3.json" "${base[@]}")
half=(--torch_dtype bfloat16)
chats=(--model_name_or_path "@/pretrain" --dataset_name "$root/chats.jsonl" --max_length 128 --learning_rate 1e-3
  --per_device_train_batch_size 2 --max_steps 6 --logging_steps 1 --save_steps 3 --seed 7)
prompts=(--model_name_or_path "@/sft" --dataset_name "$root/prompts.jsonl" --dataset_prompt_column problem
  --reward_funcs length --num_generations 4 --per_device_train_batch_size 8 --gradient_accumulation_steps 2
  --max_completion_length 24 --max_steps 4 --learning_rate 1e-4 --logging_steps 1 --save_steps 2 --seed 7)
adapter=(--use_peft true --lora_r 4 --lora_alpha 8)

both pretrain pretrain "${qwen[@]}"
both pretrain-bf16 pretrain "${qwen[@]}" "${half[@]}" --optim adamw_bf16 --gradient_dtype bfloat16
both pretrain-masters pretrain "${qwen[@]}" "${half[@]}" --optim adamw_torch
both pretrain-8bit pretrain "${qwen[@]}" "${half[@]}" --optim adamw_8bit
both pretrain-paged-8bit pretrain "${qwen[@]}" "${half[@]}" --optim paged_adamw_8bit
both pretrain-muon pretrain "${qwen[@]}" --optim muon
both pretrain-sgd pretrain "${qwen[@]}" --optim sgd --optim_args momentum=0.9
both pretrain-recomputed pretrain "${qwen[@]}" --gradient_checkpointing true
both pretrain-recomputed-auto pretrain "${qwen[@]}" --gradient_checkpointing auto --activation_memory_gib 0.006
both pretrain-offloaded pretrain "${qwen[@]}" "${half[@]}" --activation_offloading true --gradient_checkpointing true
both pretrain-evaluated pretrain "${qwen[@]}" --test_split_size 0.1 --eval_strategy steps --eval_steps 3
both pretrain-gpt2-dropout pretrain --model_config_path "$root/gpt2.json" "${base[@]}"
both sft sft "${chats[@]}" --packing true
both sft-unpacked sft "${chats[@]}"
both sft-dft sft "${chats[@]}" --loss_type dft
both sft-lora sft "${chats[@]}" "${adapter[@]}"
both sft-dora sft "${chats[@]}" "${adapter[@]}" --use_dora true
both grpo grpo "${prompts[@]}" --beta 0
both grpo-reference grpo "${prompts[@]}" --beta 0.04 --num_iterations 2
both grpo-synced-reference grpo "${prompts[@]}" --beta 0.04 --sync_ref_model true --ref_model_sync_steps 2
both grpo-lora grpo "${prompts[@]}" "${adapter[@]}" --beta 0.04
both eval eval @/grpo --task jsonl --dataset_name "$root/prompts.jsonl" --max_model_len 256 --temperature 1.0
both generate generate --model_name_or_path @/grpo --dataset_name "$root/prompts.jsonl" --max_new_tokens 16

# resumed NAME STEP COMMAND [keys]: both programs resume from the old program's checkpoint STEP of the run NAME.
resumed() {
  local name=$1 step=$2 which file
  shift 2
  for which in old new; do
    mkdir -p "$root/$which/resumed-$name" && cp -r "$root/old/$name/checkpoint-$step" "$root/$which/resumed-$name/"
  done
  both "resumed-$name" "$@"
  for file in model.safetensors adapter_model.safetensors; do
    if [[ -e $root/old/$name/$file ]] && ! cmp -s "$root/old/$name/$file" "$root/new/resumed-$name/$file"; then
      report "resumed-$name is the whole run" "DIFFERENT $file"
    fi
  done
}
resumed pretrain 3 pretrain "${qwen[@]}"
resumed pretrain-masters 3 pretrain "${qwen[@]}" "${half[@]}" --optim adamw_torch
resumed pretrain-paged-8bit 3 pretrain "${qwen[@]}" "${half[@]}" --optim paged_adamw_8bit
resumed pretrain-gpt2-dropout 3 pretrain --model_config_path "$root/gpt2.json" "${base[@]}"
resumed sft-lora 3 sft "${chats[@]}" "${adapter[@]}"
resumed grpo-synced-reference 2 grpo "${prompts[@]}" --beta 0.04 --sync_ref_model true --ref_model_sync_steps 2

plan plan-pretrain pretrain "${qwen[@]}"
plan plan-muon pretrain "${qwen[@]}" --optim muon
plan plan-8bit pretrain "${qwen[@]}" "${half[@]}" --optim paged_adamw_8bit --gradient_checkpointing true
plan plan-sft-lora sft "${chats[@]}" "${adapter[@]}"
plan plan-grpo grpo "${prompts[@]}" --beta 0.04

echo "$different runs or plans differ"
((different == 0))
