#include "backend/device_usage.h"

#include <array>
#include <utility>

#include "backend/gpu.h"
#include "core/process.h"

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

}  // namespace

DeviceUsage usage_of(const Device& device) {
  if (device.kind() == DeviceKind::cuda) return gpu_usage();
  return {.busy_percent = std::nullopt, .used_bytes = device.allocated_bytes(), .total_bytes = system_memory().total};
}

std::optional<double> promised_flops(std::string_view device_name) {
  for (const auto& [name, teraflops] : kPromisedTeraflops) {
    if (device_name.find(name) != std::string_view::npos) return teraflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace hone
