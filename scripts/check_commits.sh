#!/usr/bin/env bash
# Checks the messages of commits against docs/contributing.md.
#   scripts/check_commits.sh [RANGE]   default: all commits since the rule was made
# A subject has at most 72 characters, begins with a capital verb in the imperative ("Add", not "Added" or "Adding") and
# ends without a period. The second line is empty. Prints one line for each fault and exits with 1 if there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rule=$(git log --diff-filter=A --format=%H -- scripts/check_commits.sh 2>/dev/null | tail -n 1)
range=${1:-}
if [[ -z $range ]]; then
  if [[ -z $rule ]]; then
    echo "check_commits: the history is not here; nothing is checked" >&2
    exit 0
  fi
  range=$rule..HEAD
fi

faults=0
fault() {
  echo "commit ${1:0:10}: $2" >&2
  faults=$((faults + 1))
}
while read -r commit; do
  message=$(git log -1 --format=%B "$commit")
  subject=${message%%$'\n'*}
  if ((${#subject} > 72)); then fault "$commit" "the subject has ${#subject} characters, at most 72: $subject"; fi
  if [[ $subject == *. ]]; then fault "$commit" "the subject ends with a period: $subject"; fi
  if [[ ! $subject =~ ^[A-Z][a-z]+(\ |$) ]]; then
    fault "$commit" "the subject does not begin with a capital verb: $subject"
  elif [[ $subject =~ ^[A-Z][a-z]*([^e]ed|ing|ion|s)\  && ! $subject =~ ^(Embed|Feed|Need|Shed|Speed|Bring|Ping|String|Process|Pass|Address|Compress|Discuss|Focus|Cross|Press|Express|Suppress|Bypass|Assess|Caution|Mention|Partition|Position|Question|Function|Condition|Version|Transition)\  ]]; then
    fault "$commit" "the subject is not in the imperative: $subject"
  fi
  rest=${message#"$subject"}
  if [[ -n $rest && $rest != $'\n\n'* ]]; then fault "$commit" "the line after the subject is not empty"; fi
done < <(git rev-list "$range")
((faults == 0))
