// Runs untrusted programs, each in a separate sandbox with limits on time, memory, processes and output.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/control_groups.h"
#include "sandbox/mode.h"

namespace hone {

struct SandboxFile {
  std::string name;  // path relative to the program's working directory; may contain folders
  std::string_view content;
  bool executable = false;
};

// Named pipe that connects programs in different sandboxes.
struct SandboxPipe {
  std::string path;  // path on this machine
  std::string name;  // name in the program's working directory
};

struct SandboxProgram {
  std::vector<std::string> arguments;  // the first is an absolute path, or the path of one of `files` ("./program")
  std::vector<SandboxFile> files;      // written to the working directory before the program starts
  std::vector<std::string> readable;   // folders and files of this machine that it may read in addition to /usr
  std::vector<SandboxPipe> pipes;
};

struct SandboxLimits {
  // A program that is idle when this time has passed is killed. If it is runnable and all its processes together have
  // used less CPU time than this, it may continue until they have used as much, for at most 12 times this time on the
  // clock: a busy machine does not make a program fail.
  std::chrono::milliseconds wall_time{5000};
  std::chrono::milliseconds silence{0};     // the same limit from one output to the next; 0: no limit
  std::int64_t cpu_seconds = 6;             // CPU time of each process
  std::uint64_t memory_bytes = 1ULL << 30;  // address space of each process; in a control group, memory of all together
  std::int64_t processes = 10;              // processes and threads, including one or two of the sandbox itself
  std::uint64_t file_bytes =
      16ULL << 20;  // size of each file that it writes; at least the size of its largest given file
  std::uint64_t disk_bytes = 64ULL << 20;   // all files that it writes together; they are in memory (tmpfs)
  std::uint64_t output_bytes = 1ULL << 20;  // each output stream; a program that prints more is killed
  bool deep_stack = false;                  // the stack may take all of memory_bytes, as in programming contests
  int stop = -1;                            // a descriptor; the program is killed when it becomes readable
};

struct SandboxResult {
  int exit_status = 0;  // 128 + signal if a signal ended it
  int signal = 0;
  bool timed_out = false;
  bool output_exceeded = false;
  std::string output;   // standard output, cut at the limit
  std::string error;    // standard error, at most the first 64 KiB
  std::string failure;  // why the program could not be run; empty if it ran

  [[nodiscard]] bool succeeded() const {
    return exit_status == 0 && signal == 0 && !timed_out && !output_exceeded && failure.empty();
  }
};

struct SandboxTask {
  const SandboxProgram* program = nullptr;
  std::string_view input;  // text on standard input
  SandboxLimits limits;
};

class Launcher;
struct World;

// Runs programs in sandboxes. Except with SandboxMode::kNone, a program sees the programs, libraries and headers of
// /usr and its `readable` folders, all read-only, and a private /tmp with its files, in which it starts. It has no
// network, sees no process outside of its sandbox and no environment variable of this process. When run() returns, and
// also when this process dies, all processes that it started are dead and all files that it wrote are gone.
// Thread-safe.
class Sandbox {
 public:
  // Throws Error, with the reason and the remedy, if this machine cannot run a program in such a sandbox, or if one of
  // `hidden`, the working directory, the home directory or a cache directory is below a path that programs may read.
  explicit Sandbox(SandboxMode mode, std::vector<std::string> hidden = {});

  [[nodiscard]] SandboxResult run(const SandboxProgram& program, std::string_view input,
                                  const SandboxLimits& limits) const;
  // Runs `workers` tasks concurrently (0: thread_count()) and returns the results in the order of the tasks.
  [[nodiscard]] std::vector<SandboxResult> run(std::span<const SandboxTask> tasks, int workers = 0) const;

  // Throws Error if one of these folders contains a path that is hidden from programs.
  void check_readable(std::span<const std::string> folders) const;

 private:
  void try_out();
  [[nodiscard]] ControlGroups::Place place_for(const SandboxProgram& program, const SandboxLimits& limits) const;
  [[nodiscard]] SandboxResult run_launched(const SandboxProgram& program, std::string_view input,
                                           const SandboxLimits& limits) const;
  [[nodiscard]] SandboxResult run_wrapped(const SandboxProgram& program, std::string_view input,
                                          const SandboxLimits& limits) const;

  SandboxMode mode_;
  bool is_root_ = false;
  std::vector<std::string> hidden_;
  std::shared_ptr<ControlGroups> groups_;  // null: this process cannot create control groups
  std::shared_ptr<Launcher> launcher_;     // destroyed before groups_, because its server is in a group of groups_
  std::string bubblewrap_;                 // path of the executable bwrap
  std::shared_ptr<const World> world_;     // mounts and links that all programs see
  std::string filter_;                     // seccomp_filter()
};

// Returns the first python3 in PATH that runs in the sandbox, with the folders that it must read. Throws Error if there
// is none, or if these folders contain a hidden path.
[[nodiscard]] SandboxProgram find_python(const Sandbox& sandbox);

}  // namespace hone
