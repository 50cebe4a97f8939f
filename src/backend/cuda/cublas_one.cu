#include "backend/cuda/cublas_one.h"

#include "backend/cuda/check.h"
#include "backend/gpu/kernel.cuh"

namespace hone {

static __device__ const float kOne = 1;

const float* gpu_one() {
  void* address = nullptr;
  check_cuda(cudaGetSymbolAddress(&address, kOne), "cudaGetSymbolAddress");
  return static_cast<const float*>(address);
}

}  // namespace hone
