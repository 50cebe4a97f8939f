#!/usr/bin/env bash
# Checks that README's two commands work on bare Debian 12 and Ubuntu 24.04: makes file systems that contain only
# what debootstrap installs, copies a clone of HEAD into them, and runs ./quickstart.sh and then ./test.sh. Needs root
# and debootstrap, and uses some 3 GB for each system.
#   scripts/check_bare.sh [OPTION ...] [SYSTEM-CASE ...]   default: each system with each case
# Systems: bookworm (Debian 12), noble (Ubuntu 24.04). Any other suite of Debian works if it is named.
# Cases:
#   root     as root
#   sudo     as a user that may use sudo
#   none     as a user without sudo: ./quickstart.sh must fail, and one line must name the missing packages
#   package  makes and installs the packages as root and trains with the installed program (scripts/check_package.sh)
# Options:
#   --folder FOLDER        keeps the systems, the downloaded packages and the results (/var/tmp/hone-bare)
#   --ccache FOLDER        keeps the compiler's results of each system in FOLDER/SYSTEM, for quick builds later
#   --mirror SYSTEM=URL    Debian's or Ubuntu's archive; default: the one in this machine's apt sources
#   --keyring FILE         keys of Ubuntu's archive, by default those of the package ubuntu-keyring. If the file is
#                          missing, debootstrap checks no signatures, and a line says so.
#   --commands LIST        commands of the cases root and sudo, separated by ; (./quickstart.sh;./test.sh)
# Prints a line for each command: system, case, command, passed or FAILED, and seconds. FOLDER/results has their output.
# Exits with 1 if a command failed.
set -euo pipefail
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

folder=/var/tmp/hone-bare
ccache=
keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
commands='./quickstart.sh;./test.sh'
declare -A mirrors=()
cases=()

usage() {
  sed -n '/^# Systems/q; s/^#   \(scripts.*\)/usage: \1/p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
while (($# > 0)); do
  case $1 in
    --*) [[ $# -ge 2 ]] || usage ;;&
    --folder) folder=$2 ;;
    --ccache) ccache=$2 ;;
    --mirror)
      [[ $2 == *=* ]] || usage
      mirrors[${2%%=*}]=${2#*=}
      ;;
    --keyring) keyring=$2 ;;
    --commands) commands=$2 ;;
    [a-z]*-root | [a-z]*-sudo | [a-z]*-none | [a-z]*-package)
      cases+=("$1")
      shift
      continue
      ;;
    *) usage ;;
  esac
  shift 2
done
if ((${#cases[@]} == 0)); then
  cases=({bookworm,noble}-{none,root,sudo,package})
fi
if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
  echo "check_bare: run as root, with debootstrap installed: apt-get install debootstrap" >&2
  exit 2
fi

# mirror_of SYSTEM: prints the address of the archive: the option's, or the one in this machine's apt sources.
mirror_of() {
  local system=$1 archive=debian own
  if [[ $system == noble ]]; then archive=ubuntu; fi
  if [[ -n ${mirrors[$system]:-} ]]; then
    echo "${mirrors[$system]}"
    return
  fi
  own=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | grep -v '^ *#' |
    grep -Eo 'https?://[^ ]+' | sed 's,/*$,,' | grep -E "/$archive\$" | head -n 1) || true
  if [[ -z $own ]]; then
    echo "$system: apt's sources here have no archive of $archive; name one: --mirror $system=URL" >&2
    return 1
  fi
  echo "$own"
}

# make_base SYSTEM: makes FOLDER/SYSTEM.base, the bare file system, if it is not there.
make_base() {
  local system=$1 base=$folder/$1.base options=(--variant=minbase) mirror script=sid components=main
  if [[ -d $base ]]; then return; fi
  mirror=$(mirror_of "$system") || return 1
  if [[ $system == noble ]]; then
    script=gutsy components="main universe" # debootstrap's script of all later releases of Ubuntu
    if [[ -f $keyring ]]; then
      options+=("--keyring=$keyring")
    else
      echo "$system: $keyring is missing; the archive's signatures are not checked" >&2
      options+=(--no-check-gpg)
    fi
  fi
  rm -rf "$base.part"
  echo "$system: debootstrap from $mirror" >&2
  debootstrap "${options[@]}" "$system" "$base.part" "$mirror" "$script" >"$folder/$system.debootstrap.log" 2>&1 || {
    tail -n 5 "$folder/$system.debootstrap.log" >&2
    return 1
  }
  rm -f "$base.part/etc/apt/sources.list"
  local suite
  for suite in "$system" "$system-updates"; do
    echo "deb $mirror $suite $components" >>"$base.part/etc/apt/sources.list"
  done
  # Authorities that this machine trusts in addition, such as that of a proxy.
  mkdir -p "$base.part/usr/local/share/ca-certificates"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp -L {} "$base.part/usr/local/share/ca-certificates" \;
  mv "$base.part" "$base"
}

# inside ROOT SYSTEM USER COMMAND: runs a command in /srv/hone of the file system ROOT, in namespaces for mounts,
# processes, IPC and the host's name. Mounts and processes end with the command. It uses pivot_root in place of chroot,
# because the kernel refuses user namespaces, which the sandbox of rewards uses, to a process in a chroot.
inside() {
  local root=$1 system=$2 user=$3 command=$4
  mkdir -p "$folder/$system.debs/partial" "$root/var/cache/apt/archives" "$root/ccache"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  local environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
  if [[ -n $ccache ]]; then
    mkdir -p "$ccache/$system"
    environment+=(CCACHE_DIR=/ccache)
  fi
  unshare --mount --pid --ipc --uts --fork --kill-child --propagation private bash -euc '
    root=$1 debs=$2 ccache=$3 user=$4 command=$5
    shift 5
    mount --bind "$root" "$root"
    mount --bind "$debs" "$root/var/cache/apt/archives"
    if [[ -n $ccache ]]; then mount --bind "$ccache" "$root/ccache"; fi
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
    hostname bare
    cd "$root"
    pivot_root . .
    umount -l .
    cd /srv/hone
    exec setpriv --reuid "$user" --regid "$user" --init-groups \
      env -i "$@" HOME="$(getent passwd "$user" | cut -d : -f 6)" USER="$user" bash -c "$command"
  ' inside "$root" "$folder/$system.debs" "${ccache:+$ccache/$system}" "$user" "$command" "${environment[@]}" </dev/null
}

failures=0
# report SYSTEM CASE COMMAND STATUS SECONDS
report() {
  local verdict=passed
  if (($4 != 0)); then
    verdict=FAILED
    failures=$((failures + 1))
  fi
  printf '%-9s %-8s %-44s %s %5d s\n' "$1" "$2" "$3" "$verdict" "$5" | tee -a "$folder/results/table.txt"
}

# timed SYSTEM CASE ROOT USER COMMAND: runs and reports a command. Its output goes to FOLDER/results.
timed() {
  local system=$1 case=$2 root=$3 user=$4 command=$5 status=0 start=$SECONDS
  local log=$folder/results/$system-$case-${command//[^A-Za-z0-9]/_}.log
  inside "$root" "$system" "$user" "$command" >"${log:0:200}" 2>&1 || status=$?
  report "$system" "$case" "$command" "$status" $((SECONDS - start))
  return "$status"
}

# new_system SYSTEM CASE: makes FOLDER/SYSTEM-CASE, a bare system with a user and a clone in /srv/hone.
new_system() {
  local system=$1 case=$2 root=$folder/$1-$2
  rm -rf "$root"
  cp -a "$folder/$system.base" "$root"
  mkdir -p "$root/srv"
  git clone --quiet --no-hardlinks "$source_folder" "$root/srv/hone"
  inside "$root" "$system" root 'useradd --create-home --shell /bin/bash hone-user' >/dev/null
}

# check_none SYSTEM ROOT: without sudo, setup must fail with one line that names a package.
check_none() {
  local system=$1 root=$2 status=0 errors start=$SECONDS
  errors=$(inside "$root" "$system" hone-user ./quickstart.sh 2>&1) || status=$?
  echo "$errors" >"$folder/results/$system-none.log"
  if ((status == 1)) && [[ $errors != *$'\n'* && $errors == *"apt-get install "*ninja-build* ]]; then
    status=0
  else
    echo "exit status $status, output: $errors" >&2
    status=1
  fi
  report "$system" none "./quickstart.sh must name what is missing" "$status" $((SECONDS - start))
}

mkdir -p "$folder/results"
folder=$(cd "$folder" && pwd)
if [[ -n $ccache ]]; then mkdir -p "$ccache" && ccache=$(cd "$ccache" && pwd); fi
for entry in "${cases[@]}"; do
  system=${entry%-*} case=${entry##*-} user=root root=$folder/$entry
  make_base "$system" || {
    report "$system" "$case" debootstrap 1 0
    continue
  }
  new_system "$system" "$case"
  case $case in
    none)
      check_none "$system" "$root"
      continue
      ;;
    package) list=scripts/check_package.sh ;;
    sudo)
      list=$commands user=hone-user
      inside "$root" "$system" root '
        apt-get update && apt-get install --yes --no-install-recommends sudo &&
        echo "hone-user ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/hone-user && chown -R hone-user: .' \
        >"$folder/results/$entry-setup.log" 2>&1
      ;;
    *) list=$commands ;;
  esac
  if [[ -n $ccache && $user != root ]]; then inside "$root" "$system" root "chmod -R a+rwX /ccache"; fi
  while read -r command; do
    timed "$system" "$case" "$root" "$user" "$command" || true
  done < <(tr ';' '\n' <<<"$list")
done
((failures == 0))
