#include "backend/cuda/cublas_one.h"

#include "backend/cuda/check.h"
#include "backend/gpu/kernel.cuh"

namespace hone {
namespace {

__device__ constexpr float kOne = 1;

}  // namespace

const float* gpu_one() {
  void* address = nullptr;
  check_cuda(cudaGetSymbolAddress(&address, kOne), "cudaGetSymbolAddress");
  return static_cast<const float*>(address);
}

}  // namespace hone
