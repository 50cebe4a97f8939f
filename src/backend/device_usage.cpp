#include "backend/device_usage.h"

#include <array>
#include <utility>

#include "system/process.h"
#ifdef HONE_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#endif

namespace hone {
namespace {

// The first name that the device's holds: longer ones stand before those that they hold.
constexpr auto kPromisedTeraflops = std::to_array<std::pair<std::string_view, double>>({
    {"GB200", 2500},      {"B200", 2250},     {"GH200", 989.4}, {"H200", 989.4}, {"H100 PCIe", 756},
    {"H100 NVL", 835.5},  {"H100", 989.4},    {"H800", 989.4},  {"H20", 148},    {"A100", 312},
    {"A800", 312},        {"A40", 149.7},     {"A30", 165},     {"A10G", 70},    {"A10", 125},
    {"RTX A6000", 154.8}, {"L40S", 362.1},    {"L40", 181},     {"L4", 121},     {"RTX 5090", 209.5},
    {"RTX 4090", 165.2},  {"RTX 4080", 97.5}, {"RTX 3090", 71},
});

#ifdef HONE_CUDA
// NVML, which comes with the driver, opened when it is first asked.
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
#endif

}  // namespace

DeviceUsage usage_of(const Device& device) {
#ifdef HONE_CUDA
  if (device.kind() == DeviceKind::cuda) return gpu_usage();
#endif
  return {.busy_percent = std::nullopt, .used_bytes = device.allocated_bytes(), .total_bytes = system_memory().total};
}

std::optional<double> promised_flops(std::string_view device_name) {
  for (const auto& [name, teraflops] : kPromisedTeraflops) {
    if (device_name.find(name) != std::string_view::npos) return teraflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace hone
