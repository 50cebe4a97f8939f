// Processor time used by other processes.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace hone {

struct ProcessorTime {
  std::chrono::milliseconds used{0};
  bool is_wanted = false;  // a thread is running or runnable (state R)
};

// Returns the time of all threads of one process, without its children; zero if it has ended.
[[nodiscard]] std::chrono::nanoseconds processor_time_of(pid_t process);

// Sums the time of a process, its descendants, and their children that have been reaped. Processes that are not visible
// in /proc are not counted.
[[nodiscard]] ProcessorTime processor_time_of_tree(pid_t root);

// Returns the id of the process of a pidfd; 0 if it has ended or is not visible.
[[nodiscard]] pid_t process_of(int pidfd);

}  // namespace hone
