#include "backend/device_model.h"

#include <algorithm>

namespace hone {
namespace {

// Rates per second as in DeviceModel; 0: unknown.
struct DeviceRow {
  std::string_view name;
  double peak_flops = 0;
  double bf16_flops = 0;
  double f32_flops = 0;
  double copy_bytes = 0;
  double link_bytes = 0;
};

// One CPU core and its share of the memory bandwidth.
constexpr DeviceRow kHostCore{.name = "a core", .bf16_flops = 1e11, .f32_flops = 1e11, .copy_bytes = 1e10};
// An H100 within a training step.
constexpr DeviceRow kGpuInTrainingStep{.name = "a GPU", .bf16_flops = 6.5e14, .copy_bytes = 2.6e12};

// Lookup takes the first row whose name is contained in the device's name, so longer names precede their substrings.
// peak_flops is from data sheets, the other figures are from bench/results; the link is PCIe 5 x16
// (docs/performance.md).
constexpr DeviceRow kDevices[] = {
    {.name = "GB200", .peak_flops = 2500e12},
    {.name = "B200", .peak_flops = 2250e12},
    {.name = "GH200", .peak_flops = 989.4e12},
    {.name = "H200", .peak_flops = 989.4e12, .bf16_flops = 680e12, .copy_bytes = 4.24e12, .link_bytes = 53e9},
    {.name = "H100 PCIe", .peak_flops = 756e12},
    {.name = "H100 NVL", .peak_flops = 835.5e12},
    {.name = "H100", .peak_flops = 989.4e12, .bf16_flops = 710e12, .copy_bytes = 3.01e12, .link_bytes = 53e9},
    {.name = "H800", .peak_flops = 989.4e12},
    {.name = "H20", .peak_flops = 148e12},
    {.name = "A100", .peak_flops = 312e12},
    {.name = "A800", .peak_flops = 312e12},
    {.name = "A40", .peak_flops = 149.7e12},
    {.name = "A30", .peak_flops = 165e12},
    {.name = "A10G", .peak_flops = 70e12},
    {.name = "A10", .peak_flops = 125e12},
    {.name = "RTX A6000", .peak_flops = 154.8e12},
    {.name = "L40S", .peak_flops = 362.1e12},
    {.name = "L40", .peak_flops = 181e12},
    {.name = "L4", .peak_flops = 121e12},
    {.name = "RTX 5090", .peak_flops = 209.5e12},
    {.name = "RTX 4090", .peak_flops = 165.2e12},
    {.name = "RTX 4080", .peak_flops = 97.5e12},
    {.name = "RTX 3090", .peak_flops = 71e12},
};

DeviceRate built_in(double per_second) {
  return per_second > 0 ? DeviceRate{per_second, RateSource::kBuiltIn} : DeviceRate{};
}

DeviceModel model_of_row(std::string_view name, const DeviceRow& row) {
  return {.name = std::string(name),
          .f32_flops = built_in(row.f32_flops),
          .bf16_flops = built_in(row.bf16_flops),
          .copy_bytes = built_in(row.copy_bytes),
          .link_bytes = built_in(row.link_bytes),
          .peak_flops = built_in(row.peak_flops)};
}

}  // namespace

DeviceModel built_in_model(DeviceKind kind) {
  const DeviceRow& row = kind == DeviceKind::kCpu ? kHostCore : kGpuInTrainingStep;
  return model_of_row(row.name, row);
}

DeviceModel built_in_model(std::string_view name) {
  const auto holds = [&](const DeviceRow& row) { return name.find(row.name) != std::string_view::npos; };
  const auto* const row = std::ranges::find_if(kDevices, holds);
  return model_of_row(name, row == std::ranges::end(kDevices) ? DeviceRow{} : *row);
}

DeviceModel merged(const DeviceModel& measured, const DeviceModel& built_in) {
  DeviceModel model = measured;
  for (const auto rate : {&DeviceModel::f32_flops, &DeviceModel::bf16_flops, &DeviceModel::copy_bytes,
                          &DeviceModel::link_bytes, &DeviceModel::peak_flops}) {
    if (!(model.*rate).is_known()) model.*rate = built_in.*rate;
  }
  return model;
}

double DeviceLimits::bytes_per_second(double bytes) const {
  double best = copy_bytes_per_second;
  for (const CopyRate& copy : copies) {
    if (copy.bytes >= bytes / 4) best = std::max(best, copy.bytes_per_second);
  }
  return best;
}

double DeviceLimits::floor(double flops, double bytes) const {
  return std::max(flops / flops_per_second, bytes / bytes_per_second(bytes));
}

double DeviceLimits::reached(double flops, double bytes, double seconds) const {
  return seconds > 0 ? std::min(floor(flops, bytes) / seconds, 1.0) : 0;
}

std::optional<DeviceLimits> limits_of(const DeviceModel& model, DType dtype) {
  const DeviceRate& flops = model.flops(dtype);
  if (!flops.is_known() || !model.copy_bytes.is_known()) return std::nullopt;
  return DeviceLimits{.copy_bytes_per_second = model.copy_bytes.per_second,
                      .flops_per_second = flops.per_second,
                      .copies = model.copies};
}

}  // namespace hone
