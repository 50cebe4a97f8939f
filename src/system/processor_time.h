// The processor time that processes have used.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace hone {

struct ProcessorTime {
  std::chrono::milliseconds used{0};
  bool is_wanted = false;  // a thread runs, or waits for nothing but a processor
};

// The time of the process alone, with all its threads; zero where it has ended.
[[nodiscard]] std::chrono::nanoseconds processor_time_of(pid_t process);

// Sums the process, its descendants and those of their children that were waited for. Nothing of a process that /proc
// does not show.
[[nodiscard]] ProcessorTime processor_time_of_tree(pid_t root);

// The process of a pidfd, or 0.
[[nodiscard]] pid_t process_of(int pidfd);

}  // namespace hone
