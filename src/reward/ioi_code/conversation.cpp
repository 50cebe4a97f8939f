#include "reward/ioi_code/conversation.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "system/child.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

// Temporary folder of named pipes; removed by the destructor.
class PipeFolder {
 public:
  PipeFolder() {
    std::string pattern = (fs::temp_directory_path() / "hone-pipes-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error(pattern, std::strerror(errno));
    path_ = pattern;
    fs::permissions(path_, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  }
  PipeFolder(const PipeFolder&) = delete;
  PipeFolder& operator=(const PipeFolder&) = delete;
  ~PipeFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  // Creates a named pipe. If this process is root, the programs run as "nobody", which becomes the owner of the pipe.
  [[nodiscard]] SandboxPipe make(const std::string& name) const {
    const std::string path = (path_ / name).string();
    if (mkfifo(path.c_str(), 0600) != 0 || (geteuid() == 0 && chown(path.c_str(), kNobody, kNobody) != 0)) {
      throw Error(path, std::strerror(errno));
    }
    return {path, name};
  }

 private:
  fs::path path_;
};

// Stops the processes of the program when the manager has ended or could not be run.
class StopAtEnd {
 public:
  explicit StopAtEnd(const Descriptor& stop) : stop_(stop) {}
  StopAtEnd(const StopAtEnd&) = delete;
  StopAtEnd& operator=(const StopAtEnd&) = delete;
  ~StopAtEnd() { (void)eventfd_write(stop_.number(), 1); }

 private:
  const Descriptor& stop_;
};

// Script that connects the program's standard streams to its pipes. Opening a pipe blocks until its other end is
// opened, and managers open their pipes in either order. The extra descriptor 3 opens the output pipe in both
// directions, which does not block, so that neither side waits for the other.
constexpr std::string_view kUserScript =
    R"(in=$1; out=$2; shift 2; exec 3<>"$out"; exec ./program "$@" <"$in" >"$out" 2>/dev/null)";

SandboxProgram user_process(const IoiProblem& problem, std::string_view binary, int index, SandboxPipe reads,
                            SandboxPipe writes) {
  SandboxProgram program{.arguments = {"./program"}, .files = {{"program", binary, true}}, .readable = {}, .pipes = {}};
  const bool numbered = problem.processes != 1;
  if (problem.pipes_named) {
    program.arguments.insert(program.arguments.end(), {reads.name, writes.name});
    if (numbered) program.arguments.push_back(std::to_string(index));
  } else {
    program.arguments = {"/bin/sh", "-c", std::string(kUserScript), "sh", reads.name, writes.name};
    if (numbered) program.arguments.push_back(std::to_string(index));
  }
  program.pipes = {std::move(reads), std::move(writes)};
  return program;
}

}  // namespace

SandboxResult converse(const Sandbox& sandbox, const IoiProblem& problem, std::string_view program,
                       std::string_view manager, std::string_view input, const SandboxLimits& limits) {
  const PipeFolder folder;
  SandboxProgram judge{.arguments = {"./manager"}, .files = {{"manager", manager, true}}, .readable = {}, .pipes = {}};
  std::vector<SandboxProgram> users;
  for (int i = 0; i < problem.processes; ++i) {
    SandboxPipe from = folder.make(text_of("u", i, "_to_m"));
    SandboxPipe to = folder.make(text_of("m_to_u", i));
    judge.arguments.insert(judge.arguments.end(), {from.name, to.name});
    judge.pipes.insert(judge.pipes.end(), {from, to});
    users.push_back(user_process(problem, program, i, std::move(to), std::move(from)));
  }
  for (const std::string& argument : split(problem.manager_arguments, ' ')) {
    if (!argument.empty()) judge.arguments.push_back(argument);
  }
  // The program may wait for a manager that waits for a processor, so its time limit is three times as long. It is
  // killed when the manager ends.
  const Descriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.open()) throw Error("running a program with its manager", std::strerror(errno));
  SandboxLimits user_limits = limits;
  user_limits.wall_time *= 3;
  user_limits.stop = stop.number();
  std::vector<std::string> failures(users.size());
  SandboxResult result;
  const std::size_t programs = users.size() + 1;
  // One thread per program, because all of them must run concurrently. Thread 0 runs the manager.
  run_many(programs, static_cast<int>(programs), [&](std::size_t i) {
    if (i == 0) {
      const StopAtEnd stopping(stop);
      result = sandbox.run(judge, input, limits);
      return;
    }
    try {
      failures[i - 1] = sandbox.run(users[i - 1], {}, user_limits).failure;
    } catch (const Error& error) {
      failures[i - 1] = error.what();
    }
  });
  for (const std::string& failure : failures) {
    if (result.failure.empty()) result.failure = failure;
  }
  return result;
}

}  // namespace hone
