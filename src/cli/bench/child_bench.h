// Runs benchmarks as separate processes, so that each begins with an idle device and may be a job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/device.h"
#include "core/json.h"

namespace hone {

// Runs `hone bench ARGUMENTS --json FILE`, with the file in `scratch`, and returns its rows. What the benchmark prints
// goes to this process's output. Throws Error if it fails.
[[nodiscard]] Json run_child_bench(std::vector<std::string> arguments, const std::filesystem::path& scratch);

// Numbers of processes to measure if none are given: 1, 2, 4 and so on up to the number of GPUs, each on its own GPU,
// and that number itself; without a GPU 1 and 2, which share the CPU.
[[nodiscard]] std::vector<std::int64_t> process_counts(std::int64_t gpus);
// Number of GPUs for benchmarks on a device; 0: they run on the CPU.
[[nodiscard]] std::int64_t gpus_for(DeviceChoice device);

}  // namespace hone
