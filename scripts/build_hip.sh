#!/usr/bin/env bash
# Compiles the portable kernels and the runtime part of the HIP backend for GPUs of AMD, without warnings, and prints
# which form every operation has there (docs/hip.md). Needs the packages of scripts/setup.sh --dev; no GPU.
#   scripts/build_hip.sh [DIR]    DIR: the build folder, build-hip if not given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build-hip}
cmake --preset hip -B "$folder" -DHONE_TESTS=OFF >/dev/null
mapfile -t objects < <(ninja -C "$folder" -t targets all |
  sed -nE 's#^(CMakeFiles/hone_(ops|ops_fast|backend)\.dir/src/.*(\.cu|/(cuda|hip)/[a-z_]+\.cpp|/cuda\.cpp)\.o): .*#\1#p')
if ((${#objects[@]} == 0)); then
  echo "build_hip: $folder has no kernels to compile" >&2
  exit 1
fi
ninja -C "$folder" "${objects[@]}"
scripts/hip_table.py
echo "build_hip: ${#objects[@]} sources compiled for $(sed -nE 's/^HONE_HIP_ARCHITECTURES:.*=//p' "$folder/CMakeCache.txt")"
