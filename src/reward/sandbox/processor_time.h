// The processor time that a program and all that it started have used.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace hone {

struct ProcessorTime {
  std::chrono::milliseconds used{0};
  bool is_wanted = false;  // a thread runs, or waits for nothing but a processor
};

// Sums the process, its descendants and those of their children that were waited for. Nothing of a process that /proc
// does not show.
[[nodiscard]] ProcessorTime processor_time_of_tree(pid_t root);

// The process of a pidfd, or 0.
[[nodiscard]] pid_t process_of(int pidfd);

}  // namespace hone
