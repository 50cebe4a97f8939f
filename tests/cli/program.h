// The program itself, run on a miniature.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace hone::test {

// Starts it; what it writes to standard output and standard error is appended to `log`.
[[nodiscard]] pid_t start_program(const std::vector<std::string>& arguments, const std::filesystem::path& log);
// The exit code; 128 + the signal's number where one ended it.
[[nodiscard]] int wait_for(pid_t child);

struct Ended {
  int code = 0;
  std::string output;  // of both streams
};
[[nodiscard]] Ended run_program(const std::vector<std::string>& arguments);

// `hone pretrain` on the miniature in `folder` (support/miniature.h), then `more`.
[[nodiscard]] std::vector<std::string> pretrain_arguments(const std::filesystem::path& folder,
                                                          const std::vector<std::string>& more);

}  // namespace hone::test
