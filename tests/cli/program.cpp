#include "cli/program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "core/files.h"
#include "support/paths.h"

namespace hone::test {
namespace fs = std::filesystem;

pid_t start_program(const std::vector<std::string>& arguments, const fs::path& log) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const std::string program = (binary_dir() / "hone").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  if (std::freopen(log.c_str(), "a", stderr) != nullptr && ::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
    ::execv(program.c_str(), argv.data());
  }
  ::_exit(127);
}

void copy_folder(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  if (fs::exists(from)) fs::copy(from, to, fs::copy_options::recursive);
}

bool is_running(pid_t child) {
  siginfo_t ended{};
  return ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<pid_t> ranks_of(pid_t launcher) {
  std::vector<pid_t> ranks;
  std::ifstream in("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) + "/children");
  for (pid_t id = 0; in >> id;) ranks.push_back(id);
  return ranks;
}

Ended run_program(const std::vector<std::string>& arguments) {
  const TemporaryDirectory directory;
  const fs::path log = directory.path() / "log";
  const int code = wait_for(start_program(arguments, log));
  return {code, read_file(log)};
}

std::vector<std::string> pretrain_arguments(const fs::path& folder, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"pretrain",
                                     "--model_config_path",
                                     folder / "model.json",
                                     "--tokenizer_name_or_path",
                                     folder / "tokenizer",
                                     "--dataset_name",
                                     folder / "data/corpus.jsonl",
                                     "--block_size",
                                     "64",
                                     "--logging_steps",
                                     "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace hone::test
