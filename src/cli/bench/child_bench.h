// Runs benchmarks as separate processes, so that each begins with an idle device and may be a job.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"

namespace hone {

// A folder that is removed with the object.
class ScratchFolder {
 public:
  ScratchFolder();  // throws Error
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs `hone bench ARGUMENTS --json FILE`, with the file in `scratch`, and returns its rows. What the benchmark prints
// goes to this process's output. Throws Error if it fails.
[[nodiscard]] Json run_child_bench(std::vector<std::string> arguments, const std::filesystem::path& scratch);

}  // namespace hone
