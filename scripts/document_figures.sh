#!/usr/bin/env bash
# Writes the figures of README.md and the tables of docs/verification.md from bench/results, and the picture and the table
# of README.md from a run of the quickstart.
#   scripts/document_figures.sh [--check] [RUN]
# RUN is the output folder of `hone quickstart`; README keeps its picture and table without one.
# --check changes nothing and exits with 1 if a document does not show the figures of bench/results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=false
if [[ ${1:-} == --check ]]; then
  check=true
  shift
fi
run=${1:-}

# accuracies MACHINE COLUMN: "worst median best" over the seeds, in percent.
accuracies() {
  awk -F, -v machine="$1" -v column="$2" '$1 == machine { print $column }' bench/results/quickstart.csv | sort -n |
    awk '{ v[NR] = $1 } END { printf "%.1f %.1f %.1f\n", v[1], (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[NR] }'
}

figures() {
  local shape hone torch machine date commit command peer cpu_sft cpu_grpo gpu_sft gpu_grpo
  IFS=, read -r shape hone torch machine date commit command peer < <(tail -n 1 bench/results/train-peers.csv)
  echo "| figure | | command |"
  echo "|---|---|---|"
  printf "| training of %s, bf16, one %s | **%s tokens/s**, %.2f times compiled torch's %s in the same call (commit %s, %s) | \`%s\`, \`%s\` |\n" \
    "$shape" "$machine" "$(group "$hone")" "$(awk -v a="$hone" -v b="$torch" 'BEGIN { print a / b }')" "$(group "$torch")" "$commit" "$date" "$command" "$peer"
  read -r -a gpu_sft < <(accuracies "NVIDIA H100 80GB HBM3" 4)
  read -r -a gpu_grpo < <(accuracies "NVIDIA H100 80GB HBM3" 5)
  read -r -a cpu_sft < <(accuracies CPU 4)
  read -r -a cpu_grpo < <(accuracies CPU 5)
  printf "| accuracy of the quickstart before and after GRPO, seeds 1 to 20, none left out: median (worst) | **%s%% to %s%%** (%s%% to %s%%) on a CPU, %s%% to %s%% (%s%% to %s%%) on an H100 | \`scripts/quickstart_seeds.sh\` |\n" \
    "${cpu_sft[1]}" "${cpu_grpo[1]}" "${cpu_sft[0]}" "${cpu_grpo[0]}" "${gpu_sft[1]}" "${gpu_grpo[1]}" "${gpu_sft[0]}" "${gpu_grpo[0]}"
  printf "| bits that differ between rollout's and trainer's log-probabilities, in the %s GRPO steps of these runs | **0**: a run stops at the first | \`exact_logprobs: true\`, the default |\n" \
    "$(group $((100 * $(tail -n +2 bench/results/quickstart.csv | wc -l))))"
}

group() { printf "%d" "$1" | sed -E ':a; s/([0-9])([0-9]{3})($|,)/\1,\2\3/; ta'; }

# The checks of verification.json: a table for each section, in the order of the file. A record has section, what, figure,
# command (may be empty), machine and date.
verification() {
  python3 - << 'END'
import json

section = None
for check in json.load(open("bench/results/verification.json")):
    if check["section"] != section:
        section = check["section"]
        print(f"\n## {section}\n\n| check | result | command | machine | date |\n|---|---|---|---|---|")
    command = f"`{check['command']}`" if check["command"] else ""
    print(f"| {check['what']} | {check['figure']} | {command} | {check['machine']} | {check['date']} |")
print()
END
}

# The table of a run, as an indented block.
table() {
  echo "    \$ build/hone quickstart --seed $(sed -n 's/.*seed \([0-9]*\).*/\1/p' "$run/report.html" | head -n 1)"
  echo "    ..."
  sed -e '/^$/{1d}' -e 's/^\(.\)/    \1/' "$run/report.txt"
}

# replace NAME FILE: puts standard input between the two marks of that name.
replace() {
  awk -v begin="<!-- $1:" -v end="<!-- end of $1 -->" '
    BEGIN { while ((getline line < "/dev/stdin") > 0) text = text line "\n" }
    index($0, begin) == 1 { print; printf "%s", text; skip = 1; next }
    $0 == end { skip = 0 }
    !skip { print }' "$2"
}

# written DOCUMENT NEW: takes over the new text of a document; with --check, compares the two.
written() {
  if ! $check; then
    cp "$2" "$1"
  elif ! diff -u "$1" "$2"; then
    echo "$1 does not show the figures of bench/results: scripts/document_figures.sh writes them" >&2
    stale=true
  fi
}

new=$(mktemp)
trap 'rm -f "$new"' EXIT
stale=false
figures | replace figures README.md > "$new"
written README.md "$new"
verification | replace verification docs/verification.md > "$new"
written docs/verification.md "$new"
if $check; then
  $stale && exit 1
  exit 0
fi
if [[ -n $run ]]; then
  mkdir -p docs/images
  cp "$run/plots/grpo-rewards.svg" docs/images/grpo-rewards.svg
  table | replace quickstart README.md > "$new"
  cp "$new" README.md
fi
