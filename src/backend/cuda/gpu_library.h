// Opens the libraries of CUDA, or of ROCm in a build for HIP, at run time, so that hone starts without them and needs
// them only where they are used.
#pragma once

#include <initializer_list>
#include <string_view>

namespace hone {

// Opens a library such as libcublasLt.so.13 by the search path of the dynamic loader, then in `folders` below
// CUDA_HOME, CUDA_PATH and /usr/local/cuda, or, for HIP, below ROCM_PATH and /opt/rocm; empty: lib64, or lib for HIP.
// Throws Error, at `place` and with this hint, if it is in none of them.
[[nodiscard]] void* open_gpu_library(std::string_view name, std::string_view place, std::string_view hint,
                                     std::initializer_list<std::string_view> folders = {});

}  // namespace hone
