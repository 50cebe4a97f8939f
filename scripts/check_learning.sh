#!/usr/bin/env bash
# Checks that a DeepSeek-V3 learns in hone as in PyTorch: trains a new model on a text by hone, by hone with fp8 and by
# bench/deepseek_peer.py, from the same weights with the same batches. Prints the validation losses, their differences
# and the variation of the load of experts, and exits with 1 if a bound of scripts/check_learning.py is missed.
#   scripts/check_learning.sh PROGRAM TEXT [PYTHON]   PYTHON (python3) has torch and transformers 5
# Environment: HONE_RECIPE (recipes/deepseek_v3/tiny.yaml), HONE_STEPS (2000), HONE_DEVICE (auto). HONE_LOGS (a
# temporary folder, which is removed) is an empty folder for the runs and their metrics. HONE_FP8=0 leaves out the run
# with fp8. HONE_PEER_KEYS are keys of the peer alone: with "--bias_update_speed 0" the check must fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# < 2)); then
  echo "usage: scripts/check_learning.sh PROGRAM TEXT [PYTHON]" >&2
  exit 2
fi
program=$(realpath "$1")
text=$(realpath "$2")
python=${3:-python3}
recipe=${HONE_RECIPE:-recipes/deepseek_v3/tiny.yaml}
steps=${HONE_STEPS:-2000}
device=${HONE_DEVICE:-auto}
if ! "$python" -c 'import torch, transformers, tokenizers, yaml' 2>/dev/null; then
  echo "learning: skipped: $python has no torch and transformers"
  exit 0
fi
if [[ -n ${HONE_LOGS:-} ]]; then
  runs=$HONE_LOGS
  mkdir -p "$runs"
else
  runs=$(mktemp -d)
  trap 'rm -rf "$runs"' EXIT
fi
read -ra peer_keys <<< "${HONE_PEER_KEYS:-}"

# timed NAME COMMAND...: runs a command with its output in a log, and prints the seconds it took.
timed() {
  local name=$1 start=$EPOCHREALTIME
  shift
  "$@" > "$runs/$name.log" 2>&1 || {
    echo "learning: $name failed: $(tail -n 3 "$runs/$name.log")" >&2
    exit 2
  }
  printf 'learning: %s took %.0f s\n' "$name" "$(awk "BEGIN { print $EPOCHREALTIME - $start }")"
}

timed tokenizer "$program" tokenizer train --vocab_size 8192 --input "$text" --output "$runs/tokenizer"
keys=(--config "$recipe" --dataset_name "$text" --tokenizer_name_or_path "$runs/tokenizer" --sampling blocks
  --device "$device" --save_strategy no)
# A step with a learning rate of 0 saves the weights that a new model starts with.
timed initial "$program" pretrain "${keys[@]}" --max_steps 1 --learning_rate 0 --bias_update_speed 0 \
  --eval_strategy no --output_dir "$runs/initial"

keys+=(--model_config_path "" --model_name_or_path "$runs/initial" --max_steps "$steps" --logging_steps 1
  --eval_strategy steps --eval_steps "$((steps / 8))" --eval_on_start true)
timed hone "$program" pretrain "${keys[@]}" --output_dir "$runs/hone"
if [[ ${HONE_FP8:-1} == 1 ]]; then
  timed hone-fp8 "$program" pretrain "${keys[@]}" --fp8 true --output_dir "$runs/hone-fp8"
fi
timed torch "$python" bench/deepseek_peer.py "${keys[@]}" "${peer_keys[@]}" --output_dir "$runs/torch"
"$python" scripts/check_learning.py "$runs"
