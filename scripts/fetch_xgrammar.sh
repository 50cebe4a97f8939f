#!/usr/bin/env bash
# Fetches the sources of xgrammar, checks their hash and unpacks them into the folder where CMake looks for them:
# xgrammar-VERSION in $HONE_THIRD_PARTY (default: hone/third_party in the user's cache). Returns immediately if they are
# there. Needs python3 with pip, which asks the index that it is configured for.
#   scripts/fetch_xgrammar.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The version is the one that cmake/HoneXgrammar.cmake names.
version=$(sed -n 's/^set(HONE_XGRAMMAR_VERSION \(.*\))$/\1/p' cmake/HoneXgrammar.cmake)
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
folder=${HONE_THIRD_PARTY:-${XDG_CACHE_HOME:-$HOME/.cache}/hone/third_party}
[[ -e $folder/xgrammar-$version/LICENSE ]] && exit 0

mkdir -p "$folder"
work=$(mktemp -d "$folder/xgrammar.XXXXXX")
trap 'rm -rf "$work"' EXIT

# pip asks the build backend of a source archive for its metadata before it keeps the archive. This backend answers
# without the tools that the real one needs.
mkdir -p "$work/backend/scikit_build_core"
touch "$work/backend/scikit_build_core/__init__.py"
cat >"$work/backend/scikit_build_core/build.py" <<END
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = "xgrammar-$version.dist-info"
    folder = pathlib.Path(metadata_directory) / name
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: xgrammar\nVersion: $version\n")
    return name
END
echo "xgrammar==$version --hash=sha256:$sha256" >"$work/requirements.txt"
if ! PYTHONPATH="$work/backend" python3 -m pip download --quiet --disable-pip-version-check --no-deps \
    --no-binary :all: --no-build-isolation --require-hashes --dest "$work" --requirement "$work/requirements.txt" \
    >"$work/log" 2>&1; then
  cat "$work/log" >&2
  echo "setup: pip cannot fetch xgrammar $version" >&2
  exit 1
fi
tar -xzf "$work/xgrammar-$version.tar.gz" -C "$work" --no-same-owner
# Another run may have been faster. A folder appears under its name only when it is complete.
mv -T "$work/xgrammar-$version" "$folder/xgrammar-$version" 2>/dev/null || [[ -e $folder/xgrammar-$version/LICENSE ]]
echo "setup: the sources of xgrammar $version are in $folder"
