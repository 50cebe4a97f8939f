// Requirements and limits of GPUs of NVIDIA and of their driver.
#include "backend/cuda/device.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr int kOldestCapability = 80;

}  // namespace

std::string advice_on(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "another process may use the GPU's memory: see nvidia-smi";
    case cudaErrorInsufficientDriver:
      return "the driver is older than CUDA 13 needs (580 or later)";
    default:
      return {};
  }
}

std::string cuda_obstacle() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "no NVIDIA driver was found";
    return text_of("the driver supports CUDA ", driver / 1000, ".", driver % 1000 / 10, "; ", CUDART_VERSION / 1000,
                   ".", CUDART_VERSION % 1000 / 10, " is needed");
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && devices == 0)) return "there is no GPU";
  if (status != cudaSuccess) return cudaGetErrorString(status);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, chosen_cuda_device()) != cudaSuccess)
    return "the GPU's properties cannot be read";
  const int capability = properties.major * 10 + properties.minor;
  if (capability < kOldestCapability) {
    return text_of(properties.name, " has compute capability ", properties.major, ".", properties.minor,
                   "; 8.0 or later is needed");
  }
  return {};
}

int CudaDevice::compute_capability() const { return properties_.major * 10 + properties_.minor; }

std::size_t CudaDevice::shared_bytes_per_block() const { return properties_.sharedMemPerBlockOptin; }

}  // namespace hone
