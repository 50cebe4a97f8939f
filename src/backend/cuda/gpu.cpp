#include "backend/gpu.h"

#include "backend/gpu_collective.h"

#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/cuda/pinned_memory.h"

namespace hone {

std::optional<Error> gpu_obstacle() {
  const std::string obstacle = cuda_obstacle();
  if (obstacle.empty()) return std::nullopt;
  return Error("device", text_of(kGpuBackend, " cannot be used: ", obstacle), "use device: cpu");
}

std::optional<std::string> gpu_fp8_obstacle() {
  const int capability = cuda_device().compute_capability();
  if (capability == 90) return std::nullopt;
  if (capability == 0) return "a build for HIP has no products of e4m3 with scales for blocks of 128";
  return text_of(cuda_device().name(), " has compute capability ", capability / 10, ".", capability % 10,
                 "; products of e4m3 with scales for blocks of 128 need 9.0");
}

int gpu_count() {
  int devices = 0;
  return !gpu_obstacle() && cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

Device& gpu_device() { return cuda_device(); }

void choose_gpu(int ordinal) { choose_cuda_device(ordinal); }

DeviceMemory gpu_memory() {
  DeviceMemory memory;
  check_cuda(cudaSetDevice(chosen_cuda_device()), "cudaSetDevice");
  check_cuda(cudaMemGetInfo(&memory.available, &memory.total), "cudaMemGetInfo");
  return memory;
}

Device& gpu_host_memory() { return pinned_memory(); }

void set_gpu_gemm_tuning(Device& gpu, const GemmTuning& tuning) {
  gpu.synchronize();
  static_cast<CudaDevice&>(gpu).cublas().set_tuning(tuning);
}

}  // namespace hone
