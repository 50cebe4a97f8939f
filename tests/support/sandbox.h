// Support for tests that run programs in the sandbox.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hone::test {

// Returns true if this machine lets a user make namespaces, which a container may forbid. The check makes one itself,
// so that a fault of the sandbox fails the tests. A missing bubblewrap, python3 or compiler, which setup.sh installs,
// fails them as well.
inline bool has_namespaces() {
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
  if (!hone::test::has_namespaces()) GTEST_SKIP() << "this machine does not allow namespaces"
