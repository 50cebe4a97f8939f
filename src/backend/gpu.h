// Interface to the GPU for code that does not depend on CUDA. The folder cuda/ implements it; a build without CUDA uses
// no_cuda.cpp, in which gpu_obstacle() returns an error, gpu_count() is 0, and all other functions throw Defect.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/device.h"
#include "backend/device_memory.h"
#include "backend/device_usage.h"
#include "backend/gemm_tuning.h"
#include "backend/stopwatch.h"
#include "core/error.h"

namespace hone {

// Returns the reason why `device: cuda` cannot be used; nullopt if it can.
[[nodiscard]] std::optional<Error> gpu_obstacle();
// Returns the reason why the GPU cannot multiply e4m3 with scales for blocks of 128; nullopt if it can. gpu_obstacle()
// must be nullopt.
[[nodiscard]] std::optional<std::string> gpu_fp8_obstacle();
// Number of GPUs that this process sees; 0 if there is an obstacle.
[[nodiscard]] int gpu_count();
// Returns the first GPU. gpu_obstacle() must be nullopt, here and below.
[[nodiscard]] Device& gpu_device();
// Total and free memory as the driver reports them, in bytes.
[[nodiscard]] DeviceMemory gpu_memory();
[[nodiscard]] DeviceUsage gpu_usage();
[[nodiscard]] std::unique_ptr<Stopwatch> make_gpu_stopwatch(Device& gpu);
// Pinned host memory of the GPU, see host_memory_of().
[[nodiscard]] Device& gpu_host_memory();
void set_gpu_gemm_tuning(Device& gpu, const GemmTuning& tuning);

}  // namespace hone
