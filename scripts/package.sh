#!/usr/bin/env bash
# Installs missing packages, builds hone and makes its packages: a .tar.gz and a .deb for the distribution that this
# runs on (docs/packaging.md).
#   scripts/package.sh [PRESET [FOLDER]]   PRESET: release (default) or cuda; FOLDER (packages) receives them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release} folder=${2:-packages}
case $preset in
  release) build=build ;;
  cuda) build="build-cuda" ;;
  *)
    echo "usage: scripts/package.sh [release|cuda [FOLDER]]" >&2
    exit 2
    ;;
esac

scripts/setup.sh --package
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --target hone
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cpack --config "$build/CPackConfig.cmake" -B "$folder"
rm -r "$folder/_CPack_Packages"
