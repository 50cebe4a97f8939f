// The factor of products whose factors cuBLASLt reads from GPU memory.
#pragma once

namespace hone {

// Returns the address of the number 1 in the memory of the current GPU.
[[nodiscard]] const float* gpu_one();

}  // namespace hone
