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
  double memory_bytes = 0;
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
    {.name = "H200",
     .peak_flops = 989.4e12,
     .bf16_flops = 680e12,
     .copy_bytes = 4.24e12,
     .link_bytes = 53e9,
     .memory_bytes = 150.1e9},
    {.name = "H100 PCIe", .peak_flops = 756e12},
    {.name = "H100 NVL", .peak_flops = 835.5e12},
    {.name = "H100",
     .peak_flops = 989.4e12,
     .bf16_flops = 710e12,
     .copy_bytes = 3.01e12,
     .link_bytes = 53e9,
     .memory_bytes = 84.9e9},
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

// The speed of a training step on Hopper (docs/performance.md). Attention, experts and updates are those of the tables
// there; collectives those of two H100s; what a pair of devices sends that of DeepSeek-V2-Lite's exchanges on two and
// four H200s; overlap_loss that of data parallelism with one micro-batch on two H200s.
StepRates hopper_step() {
  return {.attention_forward = {521e12, 471},
          .attention_backward = {490e12, 690},
          .head_share = 0.9,
          .grouped_forward_share = 1.0,
          .grouped_input_gradient_share = 0.9,
          .grouped_weight_gradient_share = 0.78,
          .kernel_share = 0.9,
          .update_share = 0.95,
          .update_8bit_share = 0.85,
          .node_seconds = 2.5e-6,
          .parallel_tiles = 132,
          .collectives = {{16.8e6, 217e9}, {268e6, 299e9}, {1.07e9, 332e9}},
          .collective_seconds = 20e-6,
          .send_bytes = 200e9,
          .overlap_loss = 0.7};
}

// The speed of a training step on CPUs of one host, of a core. Processes talk by TCP, whose rates are those of `hone
// bench collectives` on two cores of an AMD EPYC (2026-11-26); the others are rough.
StepRates host_step() {
  return {.attention_forward = {0.5e11, 64},
          .attention_backward = {0.5e11, 64},
          .kernel_share = 0.5,
          .update_share = 0.8,
          .update_8bit_share = 0.3,
          .node_seconds = 5e-6,
          .parallel_tiles = 1,
          .collectives = {{16.8e6, 1.2e9}, {268e6, 9e8}},
          .collective_seconds = 100e-6,
          .send_bytes = 1.2e9,
          .overlap_loss = 1};
}

DeviceRate built_in(double per_second) {
  return per_second > 0 ? DeviceRate{per_second, RateSource::kBuiltIn} : DeviceRate{};
}

DeviceModel model_of_row(std::string_view name, const DeviceRow& row) {
  return {.name = std::string(name),
          .f32_flops = built_in(row.f32_flops),
          .bf16_flops = built_in(row.bf16_flops),
          .copy_bytes = built_in(row.copy_bytes),
          .link_bytes = built_in(row.link_bytes),
          .peak_flops = built_in(row.peak_flops),
          .memory_bytes = row.memory_bytes,
          .step = row.name == "H100" || row.name == "H200" ? std::optional(hopper_step()) : std::nullopt};
}

}  // namespace

DeviceModel built_in_model(DeviceKind kind) {
  const DeviceRow& row = kind == DeviceKind::kCpu ? kHostCore : kGpuInTrainingStep;
  DeviceModel model = model_of_row(row.name, row);
  model.step = kind == DeviceKind::kCpu ? host_step() : hopper_step();
  return model;
}

DeviceModel built_in_model(std::string_view name) {
  const auto holds = [&](const DeviceRow& row) { return name.find(row.name) != std::string_view::npos; };
  const auto* const row = std::ranges::find_if(kDevices, holds);
  return model_of_row(name, row == std::ranges::end(kDevices) ? DeviceRow{} : *row);
}

std::vector<std::string> devices_with_step_rates() {
  std::vector<std::string> names;
  for (const DeviceRow& row : kDevices) {
    if (model_of_row(row.name, row).step) names.emplace_back(row.name);
  }
  return names;
}

DeviceModel like_known_gpu(const DeviceModel& gpu) {
  DeviceModel model = built_in_model("H100");
  if (!gpu.peak_flops.is_known()) return model;
  const double share = gpu.peak_flops.per_second / model.peak_flops.per_second;
  model.peak_flops = gpu.peak_flops;
  for (const auto rate : {&DeviceModel::bf16_flops, &DeviceModel::copy_bytes}) (model.*rate).per_second *= share;
  HONE_ASSERT(model.step.has_value(), model.name, " has no rates of a step");
  for (AttentionRate* const rate : {&model.step->attention_forward, &model.step->attention_backward}) {
    rate->flops *= share;
  }
  return model;
}

DeviceModel merged(const DeviceModel& measured, const DeviceModel& built_in) {
  DeviceModel model = measured;
  for (const auto rate : {&DeviceModel::f32_flops, &DeviceModel::bf16_flops, &DeviceModel::copy_bytes,
                          &DeviceModel::link_bytes, &DeviceModel::peak_flops}) {
    if (!(model.*rate).is_known()) model.*rate = built_in.*rate;
  }
  if (model.memory_bytes == 0) model.memory_bytes = built_in.memory_bytes;
  if (!model.step) model.step = built_in.step;
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
