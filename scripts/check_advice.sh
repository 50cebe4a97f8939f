#!/usr/bin/env bash
# Profiles recipes that are each set badly in one way. The first advice must name the fault, and the gain that it
# predicts must be within 25% of the gain of real training runs that follow it. Untuned GEMMs are a fault only where the
# library's choice is slow; elsewhere tuning must not be advised and not gain.
#   scripts/check_advice.sh [CASE ...]   default: all cases of scripts/check_advice.py that the device has
# The machine should have nothing else to do. Environment: HONE_BUILD_DIR (build) is the build folder; HONE_DEVICE (cpu)
# the device, cpu or cuda; HONE_REPEATS (3) the runs of each recipe, of which the median counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${HONE_BUILD_DIR:-build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 scripts/check_advice.py "$build/hone" "$folder" "$@"
