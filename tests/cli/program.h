// The program itself, run on a miniature.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace hone::test {

// Starts it; what it writes to standard output and standard error is appended to `log`.
[[nodiscard]] pid_t start_program(const std::vector<std::string>& arguments, const std::filesystem::path& log);
// Makes `to` what `from` is, also where there is none.
void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// False once the child has ended; wait_for is still to be called.
[[nodiscard]] bool is_running(pid_t child);

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
