// Runs the program build/hone in a child process.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace hone::test {

// Starts the program and appends its standard output and standard error to `log`.
[[nodiscard]] pid_t start_program(const std::vector<std::string>& arguments, const std::filesystem::path& log);
// Replaces the folder `to` by a copy of `from`; removes `to` if there is no `from`.
void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Returns false once the child has ended. The caller must still call wait_for().
[[nodiscard]] bool is_running(pid_t child);

// Waits for the child and returns its exit code, or 128 + the number of the signal that ended it.
[[nodiscard]] int wait_for(pid_t child);

// Returns the processes that a process has started, such as the ranks of a job, by rank.
[[nodiscard]] std::vector<pid_t> ranks_of(pid_t launcher);

struct Ended {
  int code = 0;
  std::string output;  // standard output and standard error
};
// Runs the program to its end.
[[nodiscard]] Ended run_program(const std::vector<std::string>& arguments);

// Returns the arguments of `hone pretrain` on the miniature in `folder` (support/miniature.h), followed by `more`.
[[nodiscard]] std::vector<std::string> pretrain_arguments(const std::filesystem::path& folder,
                                                          const std::vector<std::string>& more);

}  // namespace hone::test
