// Requirements and limits of GPUs of AMD and of their driver.
#include "backend/cuda/device.h"
#include "core/error.h"

namespace hone {

std::string advice_on(cudaError_t status) {
  if (status == cudaErrorMemoryAllocation) return "another process may use the GPU's memory: see rocm-smi";
  return {};
}

std::string cuda_obstacle() {
  int devices = 0;
  const hipError_t status = hipGetDeviceCount(&devices);
  if (status == hipErrorInsufficientDriver) return "no driver of AMD was found (amdgpu, /dev/kfd)";
  if (status == hipErrorNoDevice || (status == hipSuccess && devices == 0)) return "there is no GPU of AMD";
  if (status != hipSuccess) return hipGetErrorString(status);
  return {};
}

// Compute capabilities are NVIDIA's; hone's kernels for one of them are not in this build.
int CudaDevice::compute_capability() const { return 0; }

std::size_t CudaDevice::shared_bytes_per_block() const { return properties_.sharedMemPerBlock; }

}  // namespace hone
