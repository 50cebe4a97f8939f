// Programs that nobody trusts, run one at a time or many, each in a sandbox of its own.
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
  std::string name;  // in the program's folder; may begin with folders of it
  std::string_view content;
  bool executable = false;
};

// A named pipe of this machine, by which programs in several sandboxes talk.
struct SandboxPipe {
  std::string path;  // on this machine
  std::string name;  // in the program's folder
};

struct SandboxProgram {
  std::vector<std::string> arguments;  // the first is an absolute path
  std::vector<SandboxFile> files;      // laid into the folder in which the program starts
  std::vector<std::string> readable;   // folders and files of this machine that it may read, besides those of /usr
  std::vector<SandboxPipe> pipes;
};

struct SandboxLimits {
  // A program that sleeps is ended when it has passed. One that wants a processor then, and has used less of one, all
  // its processes together, goes on until it has had as much, at most 12 times as long: a busy machine ends no program.
  std::chrono::milliseconds wall_time{5000};
  std::chrono::milliseconds silence{0};     // such a time as well, from one output to the next; 0: no limit
  std::int64_t cpu_seconds = 6;             // each process
  std::uint64_t memory_bytes = 1ULL << 30;  // address space, each process; of all together where control groups count
  std::int64_t processes = 10;              // with threads, and one or two of the sandbox itself
  std::uint64_t file_bytes = 16ULL << 20;   // each file that it writes, or the largest that is laid into its folder
  std::uint64_t disk_bytes = 64ULL << 20;   // all files that it writes, which live in memory
  std::uint64_t output_bytes = 1ULL << 20;  // of each stream; beyond, the program is killed
  bool deep_stack = false;                  // the stack may take all of memory_bytes, as in contests
  int stop = -1;                            // a descriptor: the program is ended when it can be read
};

struct SandboxResult {
  int exit_status = 0;  // 128 + signal where a signal ended it
  int signal = 0;
  bool timed_out = false;
  bool output_exceeded = false;
  std::string output;   // standard output, cut at the limit
  std::string error;    // standard error, at most the first 64 KiB
  std::string failure;  // why the program could not be run at all; else empty

  [[nodiscard]] bool succeeded() const {
    return exit_status == 0 && signal == 0 && !timed_out && !output_exceeded && failure.empty();
  }
};

struct SandboxTask {
  const SandboxProgram* program = nullptr;
  std::string_view input;  // standard input
  SandboxLimits limits;
};

class Launcher;
struct World;

// But for SandboxMode::none a program sees programs, libraries and headers of /usr and what it runs with, all
// read-only, and an empty /tmp in which it starts; no network, no other process, no variable of this one. Everything
// that it started is dead, and everything that it wrote is gone, when run() returns; also where this process dies. Any
// thread may call.
class Sandbox {
 public:
  // Throws Error with the reason and what to do where this machine runs nothing in such a sandbox, and where one of
  // `hidden`, the working folder or the home folder lies below what programs may read.
  explicit Sandbox(SandboxMode mode, std::vector<std::string> hidden = {});

  [[nodiscard]] SandboxResult run(const SandboxProgram& program, std::string_view input,
                                  const SandboxLimits& limits) const;
  // In the order of the tasks; `workers` at a time (0: thread_count()).
  [[nodiscard]] std::vector<SandboxResult> run(std::span<const SandboxTask> tasks, int workers = 0) const;

  // Throws Error where programs would see what is hidden from them, could they read these folders.
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
  std::shared_ptr<ControlGroups> groups_;  // null: the system gives this process none
  std::shared_ptr<Launcher> launcher_;     // ends first: its server is in a group of groups_
  std::string bubblewrap_;                 // the executable
  std::shared_ptr<const World> world_;     // what all programs see
  std::string filter_;
};

// "PATH/python3" that runs in the sandbox, with the folders that it must read: the first of PATH that does. Throws
// Error.
[[nodiscard]] SandboxProgram find_python(const Sandbox& sandbox);

}  // namespace hone
