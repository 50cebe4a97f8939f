#!/usr/bin/env bash
# Installs the apt packages for building and testing hone on Debian 12 and Ubuntu 24.04, and fetches the sources of
# xgrammar, which has no package (scripts/fetch_xgrammar.sh). Returns quickly if nothing is missing.
#   scripts/setup.sh [--dev | --package]   --dev: also the tools of scripts/{format,tidy,run_fuzzers}.sh and, on
#                                                 Debian 12, those of scripts/build_hip.sh
#                                          --package: also the tools of scripts/package.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(g++ cmake ninja-build ccache libgtest-dev libgmock-dev nlohmann-json3-dev libyaml-cpp-dev libedit-dev
  libflint-dev libseccomp-dev bubblewrap libpcre2-dev python3
  zlib1g-dev libzstd-dev libsnappy-dev liblz4-dev libcurl4-openssl-dev libboost-dev libssl-dev)
# Before FLINT 3, Arb, Antic and Calcium are separate packages.
if grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release; then
  packages+=(libflint-arb-dev libantic-dev libcalcium-dev)
fi
# pip fetches sources. A Python that is not the distribution's usually has its own.
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
case "${1:-}" in
  "") ;;
  --dev)
    packages+=(clang-format-19 clang-tidy-19 clang-19 libclang-rt-19-dev libomp-19-dev)
    if grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release; then
      packages+=(lld-19 libamdhip64-dev rocm-device-libs)
    fi
    ;;
  --package) packages+=(binutils dpkg-dev file gzip) ;;
  *)
    echo "usage: scripts/setup.sh [--dev | --package]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is neither Debian nor Ubuntu; install the equivalents of: ${packages[*]}," \
    "then run scripts/fetch_xgrammar.sh" >&2
  exit 1
fi

installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  scripts/fetch_xgrammar.sh
  echo "setup: all packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -v 2>/dev/null; then
    echo "setup: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Runs apt-get quietly and shows its output only if it fails.
apt() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
}

echo "setup: reading the package lists"
apt update || echo "setup: cannot update the package lists; continuing with the present ones" >&2
echo "setup: installing ${missing[*]}"
if ! apt install --yes --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get cannot install: ${missing[*]}" >&2
  exit 1
fi
scripts/fetch_xgrammar.sh
echo "setup: done"
