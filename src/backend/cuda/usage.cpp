#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>

#include "backend/gpu.h"

namespace hone {
namespace {

// NVML, which is part of the driver, loaded at the first call of gpu_usage().
class Nvml {
 public:
  Nvml() {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
    const auto by_bus =
        reinterpret_cast<int (*)(const char*, void**)>(::dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    rates_ = reinterpret_cast<int (*)(void*, Rates*)>(::dlsym(library, "nvmlDeviceGetUtilizationRates"));
    std::array<char, 32> bus{};
    int device = 0;
    const bool found = init != nullptr && by_bus != nullptr && rates_ != nullptr && init() == 0 &&
                       cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetPCIBusId(bus.data(), bus.size(), device) == cudaSuccess &&
                       by_bus(bus.data(), &handle_) == 0;
    if (!found) handle_ = nullptr;
  }

  [[nodiscard]] std::optional<double> busy_percent() const {
    Rates rates{};
    if (handle_ == nullptr || rates_(handle_, &rates) != 0) return std::nullopt;
    return rates.gpu;
  }

 private:
  struct Rates {
    unsigned gpu = 0;  // percent
    unsigned memory = 0;
  };
  int (*rates_)(void*, Rates*) = nullptr;
  void* handle_ = nullptr;
};

}  // namespace

DeviceUsage gpu_usage() {
  static const Nvml nvml;
  DeviceUsage usage{.busy_percent = nvml.busy_percent()};
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    usage.used_bytes = total - free;
    usage.total_bytes = total;
  }
  return usage;
}

}  // namespace hone
