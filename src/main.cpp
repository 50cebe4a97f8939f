#include <string>
#include <vector>

#include "cli/registry.h"

int main(int argc, char** argv) {
  hone::CommandRegistry registry;
  hone::register_all_cli(registry);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return hone::run_command_line(registry, arguments);
}
