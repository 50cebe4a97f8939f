// Converts errors of CUDA calls and kernel launches to Error.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace hone {

// Throws Error naming the call, CUDA's name of the error and what to do about it, unless `status` is success.
void check_cuda(cudaError_t status, std::string_view call);

// Checks a kernel launch; call it directly after the launch.
inline void check_launch(std::string_view kernel) { check_cuda(cudaGetLastError(), kernel); }

}  // namespace hone
