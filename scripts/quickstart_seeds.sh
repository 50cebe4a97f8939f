#!/usr/bin/env bash
# Runs the quickstart over seeds and prints the accuracy of every stage, one line of CSV for each seed.
#   scripts/quickstart_seeds.sh PROGRAM DEVICE [FIRST LAST [JOBS]]
# DEVICE is cpu or cuda; seeds are 1 to 20 unless given; JOBS runs share the machine, each with one thread. The lines
# have the form of bench/results/quickstart.csv: machine,seed,pretrain,sft,grpo. Exits with 1 if a run fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# < 2)); then
  echo "usage: scripts/quickstart_seeds.sh PROGRAM DEVICE [FIRST LAST [JOBS]]" >&2
  exit 2
fi
program=$(realpath "$1")
device=$2
first=${3:-1}
last=${4:-20}
jobs=${5:-$(nproc)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
machine=CPU
if [[ $device == cuda ]]; then machine=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1); fi

run_seed() {
  local seed=$1 stage line="$machine,$1"
  OMP_NUM_THREADS=1 "$program" quickstart --seed "$seed" --device "$device" --output_dir "$folder/$seed" \
    > "$folder/$seed.log" 2>&1 || {
    tail -n 3 "$folder/$seed.log" >&2
    return 1
  }
  for stage in pretrain sft grpo; do
    line+=,$(sed -n "s/^  $stage  *\([0-9.]*\)%.*/\1/p" "$folder/$seed/report.txt" | head -n 1)
  done
  echo "$line"
}
export -f run_seed
export program device folder machine

echo "machine,seed,pretrain,sft,grpo"
seq "$first" "$last" | xargs -P "$jobs" -I{} bash -c 'run_seed {}'
