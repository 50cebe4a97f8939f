// Converts errors of CUDA calls and kernel launches to Error.
#pragma once

#include <string>
#include <string_view>

#include "backend/gpu/runtime.h"

namespace hone {

// The name of the backend in messages, and what helps if work on the GPU has failed.
#ifdef HONE_HIP
inline constexpr std::string_view kGpuBackend = "hip";
inline constexpr std::string_view kAdviceOnWork = "if the message names no operation, set AMD_SERIALIZE_KERNEL=3";
#else
inline constexpr std::string_view kGpuBackend = "cuda";
inline constexpr std::string_view kAdviceOnWork = "if the message names no operation, set CUDA_LAUNCH_BLOCKING=1";
#endif

// Advice to the user about an error of the runtime library; empty: nothing is known.
[[nodiscard]] std::string advice_on(cudaError_t status);

// Throws Error naming the call, CUDA's name of the error and what to do about it, unless `status` is success.
void check_cuda(cudaError_t status, std::string_view call);

// Checks a kernel launch; call it directly after the launch.
inline void check_launch(std::string_view kernel) { check_cuda(cudaGetLastError(), kernel); }

}  // namespace hone
