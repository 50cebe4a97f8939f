#include "cli/bench/child_bench.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "system/child.h"

namespace hone {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "hone-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw Error(name, "cannot be created");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Json run_child_bench(std::vector<std::string> arguments, const fs::path& scratch) {
  const fs::path file = scratch / "rows.json";
  remove_path(file);
  const std::string name = "hone bench " + join(arguments, " ");
  arguments.insert(arguments.begin(), {"hone", "bench"});
  arguments.insert(arguments.end(), {"--json", file.string()});
  std::fflush(stdout);
  const int status = wait_for_child(start_child({.executable = "/proc/self/exe",
                                                 .arguments = arguments,
                                                 .environment = current_environment(),
                                                 .descriptors = {0, 1, 2},
                                                 .dies_with_thread = true}));
  if (interrupted()) throw Interrupted();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error(name, "has failed");
  return read_json(file);
}

}  // namespace hone
