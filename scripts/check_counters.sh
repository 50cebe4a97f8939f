#!/usr/bin/env bash
# Compares the events that hone profile counts by CUPTI with those of ncu, kernel by kernel, on a GPU.
#   scripts/check_counters.sh
# Needs ncu on the path, a GPU whose counters this user may read, and libcupti.so.13 (LD_LIBRARY_PATH). Environment:
# HONE_BUILD_DIR (build-cuda) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hone=${HONE_BUILD_DIR:-build-cuda}/hone
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HONE_CACHE=$folder/cache
step=(--model llama-3.1-8b --layers 2 --batch_size 1 --seq_len 2048 --num_steps 1 --warmup_steps 2 --trial_steps 0)
"$hone" profile "${step[@]}" --output_dir "$folder/profile" >/dev/null
# These metrics need one pass, so that ncu repeats no kernel, and the caches are those of the run.
ncu --csv --clock-control none --cache-control none --graph-profiling node --log-file "$folder/ncu.csv" \
  --metrics dram__bytes_read.sum,dram__bytes_write.sum,smsp__inst_executed.sum,gpu__time_duration.sum \
  "$hone" profile "${step[@]}" --counters false --output_dir "$folder/other" >/dev/null
python3 scripts/check_counters.py "$folder/profile/kernel_summary.json" "$folder/ncu.csv"
