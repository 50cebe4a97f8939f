// For tests of programs that are judged in the sandbox.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hone::test {

// Whether this machine lets a user make name spaces, which a container may forbid: asked of the system itself, so that
// a fault of the sandbox fails the tests. So does a missing bubblewrap, python3 or compiler, which setup.sh brings.
inline bool has_name_spaces() {
  static const bool has = [] {
    constexpr int kSpaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::unshare(kSpaces) == 0 ? 0 : 1);
    int status = 1;
    return ::waitpid(child, &status, 0) == child && status == 0;
  }();
  return has;
}

}  // namespace hone::test

#define SKIP_WITHOUT_SANDBOX() \
  if (!hone::test::has_name_spaces()) GTEST_SKIP() << "this machine lets nobody make name spaces"
