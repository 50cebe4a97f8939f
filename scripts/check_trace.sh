#!/usr/bin/env bash
# Checks chrome_trace.json of hone profile with Perfetto's trace processor: rows, counters and flows are there, nothing
# was dropped, and its sums are those of kernel_summary.json.
#   scripts/check_trace.sh [FOLDER]   FOLDER: the output_dir of a profile; without one, a small model is profiled here
# The package perfetto of PyPI downloads the trace processor at its first use; TRACE_PROCESSOR names one that is there.
# Without either only the file itself is checked. Environment: HONE_CHECK_DIR (build/check-trace) is the folder of the
# virtual environment that the script creates; HONE_BUILD_DIR (build) is the build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
check=${HONE_CHECK_DIR:-$build/check-trace}
folder=${1:-}
if [[ -z $folder ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  "$build/hone" profile --model quickstart --layers 2 --seq_len 64 --device cpu --num_steps 3 --trial_steps 0 \
    --output_dir "$folder" >/dev/null
fi
python=$check/venv/bin/python
if [[ ! -x $python ]] && ! { python3 -m venv "$check/venv" && "$check/venv/bin/pip" install -q perfetto protobuf; }; then
  rm -rf "$check/venv"  # the next run tries again
  python=python3
fi
"$python" scripts/check_trace.py "$folder"
