// For tests of programs that are judged in the sandbox.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "reward/sandbox/runner.h"

namespace hone::test {

// Why this machine has no sandbox, as a container may forbid it; empty where it has. A python3 or a compiler that is
// missing is no such reason: setup.sh brings both.
inline const std::string& reason_for_no_sandbox() {
  static const std::string reason = []() -> std::string {
    try {
      (void)Sandbox(SandboxMode::namespaces);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }();
  return reason;
}

}  // namespace hone::test

#define SKIP_WITHOUT_SANDBOX() \
  if (!hone::test::reason_for_no_sandbox().empty()) GTEST_SKIP() << hone::test::reason_for_no_sandbox()
