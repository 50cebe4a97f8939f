#!/usr/bin/env bash
# Checks the packages on this machine, as root: makes them, installs the .deb, trains a small model with the installed
# program outside of the checkout, and removes it. Meant for a bare system (scripts/check_bare.sh).
#   scripts/check_package.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "check_package: $*" >&2
  exit 1
}
folder=$(mktemp -d)
chmod a+rx "$folder"
trap 'rm -rf "$folder"' EXIT
scripts/package.sh release "$folder"
ls -l "$folder"
packages=("$folder"/*.deb)
archive=("$folder"/*.tar.gz)
chmod -R a+rX "$folder"
dpkg-deb --field "${packages[0]}" Package Version Depends Installed-Size

# Only what the package itself needs may serve the installed program.
apt-get remove --yes --purge --auto-remove cmake g++ 'lib*-dev' >/dev/null
apt-get install --yes --no-install-recommends "${packages[0]}"
cd "$folder"
hone --version
hone quickstart --help >/dev/null
hone man >/dev/null
[[ -f /usr/share/hone/recipes/quickstart/pretrain.yaml ]] || fail "the recipes are not installed"
hone recipes quickstart/pretrain | cmp - /usr/share/hone/recipes/quickstart/pretrain.yaml
# train PROGRAM: pre-trains the model of a recipe for three steps, in new folders.
train() {
  "$1" tokenizer train --type characters --input text.txt --output "run-${1##*/}/tokenizer"
  "$1" pretrain --config tinyshakespeare/pretrain.yaml --model_config_path tinyshakespeare/model.json \
    --tokenizer_name_or_path "run-${1##*/}/tokenizer" --dataset_name text.txt \
    --output_dir "run-${1##*/}/model" --max_steps 3
  [[ -s run-${1##*/}/model/model.safetensors ]] || fail "$1 pretrain wrote no model"
}
for ((i = 0; i < 2000; ++i)); do echo "What is $i + 1? $((i + 1))."; done >text.txt
hone recipes --output_dir .
train hone

# The archive has the same program, which runs from any folder.
apt-get remove --yes hone >/dev/null
if [[ -e /usr/bin/hone || -e /usr/share/hone ]]; then fail "files of hone are left after its removal"; fi
mkdir unpacked
tar -xzf "${archive[0]}" -C unpacked --strip-components 1
rm -r run-hone
train "$PWD/unpacked/bin/hone"
echo "the packages work"
