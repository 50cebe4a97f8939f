#include <csignal>
#include <string>
#include <vector>

#include "cli/registry.h"

int main(int argc, char** argv) {
  // A write beyond the limit of `ulimit -f` then fails with EFBIG, and the error message names the file. The default
  // action of SIGXFSZ would kill the process.
  std::signal(SIGXFSZ, SIG_IGN);
  hone::CommandRegistry registry;
  hone::register_all_cli(registry);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return hone::run_command_line(registry, arguments);
}
