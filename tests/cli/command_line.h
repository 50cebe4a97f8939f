// Runs command lines of hone within the test process and captures their output.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/registry.h"

namespace hone::test {

struct CommandResult {
  int code = 0;
  std::string said;     // standard error
  std::string printed;  // standard output
};

inline CommandResult run_commands(const std::vector<std::string>& arguments) {
  CommandRegistry registry;
  register_all_cli(registry);
  CommandResult result;
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  result.code = run_command_line(registry, arguments);
  result.printed = testing::internal::GetCapturedStdout();
  result.said = testing::internal::GetCapturedStderr();
  return result;
}

}  // namespace hone::test
