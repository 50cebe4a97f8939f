// The GPU, for code that is the same in every build. The folder cuda defines these functions; in a build without CUDA
// no_cuda.cpp does: there is an obstacle, and to call any other function is a defect.
#pragma once

#include <memory>
#include <optional>

#include "backend/device.h"
#include "backend/device_memory.h"
#include "backend/device_usage.h"
#include "backend/gemm_tuning.h"
#include "backend/stopwatch.h"
#include "core/error.h"

namespace hone {

// Why `device: cuda` cannot be had, or nothing.
[[nodiscard]] std::optional<Error> gpu_obstacle();
// The first GPU. There must be no obstacle.
[[nodiscard]] Device& gpu_device();
// Bytes: all, and those that the driver has free.
[[nodiscard]] DeviceMemory gpu_memory();
[[nodiscard]] DeviceUsage gpu_usage();
[[nodiscard]] std::unique_ptr<Stopwatch> make_gpu_stopwatch(Device& gpu);
// As host_memory_of says it.
[[nodiscard]] Device& gpu_host_memory();
void set_gpu_gemm_tuning(Device& gpu, const GemmTuning& tuning);

}  // namespace hone
