#include "cli/bench/child_bench.h"

#include <sys/wait.h>

#include <cstdio>

#include "backend/gpu.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "system/child.h"

namespace hone {

namespace fs = std::filesystem;

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

std::vector<std::int64_t> process_counts(std::int64_t gpus) {
  if (gpus == 0) return {1, 2};
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 1; count < gpus; count *= 2) counts.push_back(count);
  counts.push_back(gpus);
  return counts;
}

std::int64_t gpus_for(DeviceChoice device) { return device == DeviceChoice::kCpu ? 0 : gpu_count(); }

}  // namespace hone
