#!/usr/bin/env bash
# Lists the figures in bench/results/*.json, which `hone bench ... --json` writes, and marks a figure as stale if the
# code that it depends on has changed since it was measured.
#   bench/list_results.sh [--stale] [FILE.json ...]
# --stale lists only the stale figures. Exits with 1 if any figure is stale.
#
# The figure of a kernel depends on the folder of its operation, that of a GEMM on ops/linear and the backend, that of a
# copy on the backend, and any other on all operations and the backend. A figure without a commit, or with one that git
# does not know, is stale.
set -euo pipefail
cd "${HONE_CHECKOUT:-$(dirname "${BASH_SOURCE[0]}")/..}"

only_stale=false
if [[ ${1:-} == --stale ]]; then
  only_stale=true
  shift
fi
if (($# == 0)); then
  shopt -s nullglob
  set -- bench/results/*.json
fi

# field LINE NAME: prints the value of a string or number in a row of the file, which is one line.
field() {
  sed -n -E "s/.*\"$2\":(\"(([^\"\\]|\\\\.)*)\"|([-+0-9.eE]+)).*/\2\4/p" <<<"$1"
}

# folders WHAT: prints the folders that a figure depends on.
folders() {
  case $1 in
    "kernel "*)
      # The folder is the longest prefix of the name that is a folder: add_rms_norm_backward is in add_rms_norm.
      local name=${1#kernel } folder
      for ((length = ${#name}; length > 0; --length)); do
        folder=src/ops/${name:0:length}
        if [[ -d $folder ]]; then
          echo "$folder"
          return
        fi
      done
      echo src/ops
      ;;
    matmul) echo src/ops/linear src/backend ;;
    copy) echo src/backend ;;
    *) echo src/ops src/backend ;;
  esac
}

found=0
for file in "$@"; do
  while IFS= read -r line; do
    [[ $line == '{"what"'* ]] || continue
    what=$(field "$line" what)
    commit=$(field "$line" commit)
    state=""
    # shellcheck disable=SC2046  # several folders
    if [[ ! $commit =~ ^[0-9a-f]{40}$ ]] || ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
      state="stale: unknown commit"
    elif [[ -n $(git log --format=%h -1 "$commit..HEAD" -- $(folders "$what")) ]]; then
      state="stale: $(folders "$what") changed since ${commit:0:9}"
    fi
    if [[ -n $state ]]; then found=1; elif $only_stale; then continue; fi
    printf '%-34s %12.6g %-24s %-24s %s  %s%s\n' "$what" "$(field "$line" figure)" "$(field "$line" unit)" \
      "$(field "$line" machine)" "$(field "$line" date)" "$(field "$line" shape)" "${state:+  [$state]}"
  done <"$file"
done
exit $found
