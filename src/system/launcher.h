// Starts the processes of a job on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hone {

inline constexpr int kExitLostRank = 3;  // exit code of a rank that reports the loss of another one

// The ranks of a job that are started on this machine.
struct LocalRanks {
  int count = 0;
  int first = 0;             // rank of the first of them
  int total = 0;             // ranks of the job
  std::string address = {};  // of rank 0's machine; empty: all are on this one
  std::uint16_t port = 0;    // on which rank 0 waits, if address is set
  std::string key = {};      // of the job, if address is set
  // Ctrl+C is passed to rank 0 alone, each time: it stops an answer and not the job.
  bool converses = false;
};

// Starts processes of this executable with these arguments as ranks of a job, and waits for them. Ctrl+C
// and SIGTERM are passed on. When one fails, the others have half a minute to end by themselves and are then killed;
// all of them die with this process. Returns 0 if all succeeded, otherwise the exit code of the first that failed. A
// rank that was killed before its job could notice is logged with its signal.
[[nodiscard]] int run_processes(const LocalRanks& local, const std::vector<std::string>& arguments);

// Returns the environment for one of `count` processes that are to share the machine's cores: that of this process,
// without the variables that make a process a rank.
[[nodiscard]] std::vector<std::string> environment_of_one(int count);
// Returns the arguments with which a process that does this one's work is to be started, with its name first: those of
// this process, or what a CommandScope says.
[[nodiscard]] std::vector<std::string> own_arguments();

// While it exists, this process does the work of a command with these arguments, its name first, although it was
// started with others: a stage of a pipeline. For use by one thread.
class CommandScope {
 public:
  explicit CommandScope(std::vector<std::string> arguments);
  CommandScope(const CommandScope&) = delete;
  CommandScope& operator=(const CommandScope&) = delete;
  ~CommandScope();
};

}  // namespace hone
