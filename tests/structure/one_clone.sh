#!/usr/bin/env bash
# Runs the commands of README.md and of .ci/run in one clone, in either order and twice, on a project that builds
# instantly. In every order ./test.sh must find the tests, ./quickstart.sh must build none of them, and nothing may be
# built twice.
#   one_clone.sh SOURCE_DIR
set -euo pipefail
source_dir=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset HONE_BUILD_ROOT NINJA_STATUS

fail() {
  echo "one_clone: $*" >&2
  exit 1
}

# Creates a clone with the scripts and presets of this checkout.
make_clone() {
  clone=$folder/$1
  mkdir -p "$clone/scripts" "$clone/.ci" "$clone/bin"
  cp "$source_dir"/{quickstart.sh,test.sh,CMakePresets.json} "$clone"
  cp "$source_dir/scripts/run_tests.sh" "$clone/scripts"
  printf '#!/bin/sh\n' >"$clone/scripts/check_commits.sh"
  cp "$source_dir/.ci/run" "$clone/.ci"
  grep -E '^(option|set)\(HONE_' "$source_dir/CMakeLists.txt" >"$clone/options.cmake"
  cat >"$clone/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.24)
project(hone LANGUAGES NONE)
include(options.cmake)
if(HONE_CUDA)
  file(APPEND ${CMAKE_BINARY_DIR}/configured.txt "with CUDA\n")
endif()
add_custom_command(OUTPUT hone COMMAND echo hone >>${CMAKE_BINARY_DIR}/built.txt
  COMMAND cmake -E copy ${CMAKE_SOURCE_DIR}/hone.sh hone)
add_custom_target(program ALL DEPENDS hone)
if(HONE_TESTS)
  enable_testing()
  add_custom_command(OUTPUT a_test COMMAND echo a_test >>${CMAKE_BINARY_DIR}/built.txt
    COMMAND cmake -E touch a_test)
  add_custom_target(tests ALL DEPENDS a_test)
  add_test(NAME a_test COMMAND cmake -E cat ${CMAKE_BINARY_DIR}/a_test)
endif()
END
  printf '#!/bin/sh\necho "quickstart ran"\n' >"$clone/hone.sh"
  for script in setup build_hip check_emulated; do printf '#!/bin/sh\n' >"$clone/scripts/$script.sh"; done
  printf '#!/bin/sh\n' >"$clone/bin/nvcc" # for .ci/run
  chmod +x "$clone"/{hone.sh,scripts/{setup,build_hip,check_emulated,check_commits}.sh,bin/nvcc}
}

# Runs a command in the clone and fails unless its output has a line that matches `wanted`, an extended regular expression.
expect() {
  local wanted=$1 output
  shift
  output=$(cd "$clone" && PATH=$clone/bin:$PATH "$@" 2>&1) || fail "$clone: $* ended with $?:"$'\n'"$output"
  grep -qxE "$wanted" <<<"$output" || fail "$clone: the output of $* lacks '$wanted':"$'\n'"$output"
}
quickstart() { expect "quickstart ran" ./quickstart.sh; }
run_tests() { expect "1 passed, 0 failed" "$@"; }
expect_built() {
  [[ $(sort "$clone/build/built.txt" | xargs) == "$*" ]] ||
    fail "$clone: built $(xargs <"$clone/build/built.txt"), expected $*"
}

make_clone quickstart-first
quickstart
expect_built hone
run_tests ./test.sh
quickstart
run_tests ./test.sh
expect_built a_test hone

make_clone tests-first
run_tests ./test.sh
quickstart
expect "1 passed, 0 failed" scripts/run_tests.sh release
quickstart
run_tests ./test.sh
expect_built a_test hone

make_clone by-hand # after ./quickstart.sh
quickstart
expect "\[1/1\] Generating a_test" cmake --build --preset release
expect "100% tests passed(, 0 tests failed)? out of 1" ctest --preset release

# Values left in the CMake cache by earlier commands have no effect, because a preset sets every option.
make_clone stale
(cd "$clone" && cmake --preset release -DHONE_TESTS=OFF >/dev/null)
run_tests ./test.sh
run_tests .ci/run
[[ -e $clone/build/configured.txt ]] || fail ".ci/run did not configure the preset cuda"
options=$(sed -E 's/^[a-z]+\((HONE_[A-Z_]+) .*/\1/' "$clone/options.cmake")
cd "$clone"
for preset in $(cmake --list-presets | sed -n 's/^ *"\(.*\)".*/\1/p'); do
  # shellcheck disable=SC2086,SC2001 # one word an option
  cmake --preset "$preset" --no-warn-unused-cli -B "$folder/$preset" $(sed 's/.*/-D&=stale/' <<<"$options") >/dev/null
  cmake --preset "$preset" --no-warn-unused-cli -B "$folder/$preset" >/dev/null
  if grep '=stale$' "$folder/$preset/CMakeCache.txt"; then
    fail "CMakePresets.json: the preset $preset does not set this option, so a stale value stays in the cache"
  fi
done
