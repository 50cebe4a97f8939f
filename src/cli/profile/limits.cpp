#include "cli/profile/limits.h"

#include <algorithm>
#include <cmath>

#include "backend/host_memory.h"
#include "backend/measured_rates.h"
#include "cli/profile/one_op.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parallel.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"

namespace hone {
namespace {

DeviceRate measured(double per_second) { return {per_second, RateSource::kMeasured}; }

void copy_all(Device& device, const Buffer& to, const Buffer& from, std::size_t bytes) {
  if (device.kind() != DeviceKind::kCpu) return device.copy(to.data(), from.data(), bytes);
  constexpr std::int64_t kPiece = 64 << 10;
  parallel_for(static_cast<std::int64_t>(bytes), kPiece, [&](std::int64_t begin, std::int64_t end) {
    device.copy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
  });
}

// Measures copies within the device for sizes from 256 KiB to 1 GiB (64 MiB on a CPU). Small copies run in caches.
void measure_copies(DeviceModel& model, Device& device, double seconds) {
  constexpr std::size_t kSmallest = std::size_t{256} << 10;
  const std::size_t largest = std::size_t{device.kind() == DeviceKind::kCpu ? 64u : 1024u} << 20;
  const Buffer from(device, largest);
  const Buffer to(device, largest);
  device.fill(from.data(), 0x5A, largest);
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = kSmallest; bytes <= largest; bytes *= 4) sizes.push_back(bytes);
  for (const std::size_t bytes : sizes) {
    const double share = bytes == largest ? 1.0 : 1.0 / static_cast<double>(sizes.size());
    const double taken = min_seconds(device, [&] { copy_all(device, to, from, bytes); }, seconds * share);
    const double moved = 2 * static_cast<double>(bytes);
    model.copies.push_back({moved, moved / taken});
  }
  model.copy_bytes = measured(model.copies.back().bytes_per_second);
}

// Measures the copy from the device to pinned host memory. The other direction of the link has about the same rate.
void measure_link(DeviceModel& model, Device& device, double seconds) {
  if (device.kind() == DeviceKind::kCpu) return;
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const Buffer from(device, kBytes);
  const Buffer to(host_memory_of(device), kBytes);
  const double taken = min_seconds(device, [&] { device.download(to.data(), from.data(), kBytes); }, seconds / 4);
  model.link_bytes = measured(static_cast<double>(kBytes) / taken);
}

double gemm_rate(Device& device, DType dtype, std::int64_t size, double seconds) {
  Program program;
  (void)linear(program.input("x", {dtype, {size, size}}), program.weight("w", {dtype, {size, size}}));
  IsolatedOp product(program, program.nodes()[0], device, {}, 1);
  Executable executable = product.executable();
  return 2.0 * std::pow(static_cast<double>(size), 3) / min_seconds(device, [&] { executable.run(); }, seconds);
}

void measure_gemms(DeviceModel& model, Device& device, DType dtype, double seconds) {
  register_operations();
  if (device.kind() != DeviceKind::kCpu) {
    (dtype == DType::kBf16 ? model.bf16_flops : model.f32_flops) = measured(gemm_rate(device, dtype, 8192, seconds));
    return;
  }
  // The fastest size depends on the CPU's caches.
  for (const DType each : {DType::kF32, DType::kBf16}) {
    double best = 0;
    for (const std::int64_t size : {std::int64_t{512}, std::int64_t{1024}}) {
      best = std::max(best, gemm_rate(device, each, size, seconds / 4));
    }
    (each == DType::kBf16 ? model.bf16_flops : model.f32_flops) = measured(best);
  }
}

void keep(const DeviceModel& model, const Device& device, double seconds) {
  if (seconds >= kMinStoredSeconds) store_measured(device, model);
}

void log_stored_limits(const Device& device) {
  log_once(text_of("using the stored limits of ", device.name(), " in ", measured_rates_path().string()));
}

}  // namespace

DeviceLimits device_limits(Device& device, DType dtype, double seconds, bool anew) {
  if (const auto kept = limits_of(measured_model(device), dtype); kept && !anew) {
    log_stored_limits(device);
    return *kept;
  }
  DeviceModel model;
  measure_copies(model, device, seconds);
  measure_link(model, device, seconds);
  measure_gemms(model, device, dtype, seconds);
  keep(model, device, seconds);
  const auto limits = limits_of(model, dtype);
  HONE_ASSERT(limits.has_value(), "the limits were not measured");
  return *limits;
}

double gemm_limit(Device& device, DType dtype, double seconds) {
  if (const DeviceRate kept = measured_model(device).flops(dtype); kept.is_known()) {
    log_stored_limits(device);
    return kept.per_second;
  }
  DeviceModel model;
  measure_gemms(model, device, dtype, seconds);
  keep(model, device, seconds);
  return model.flops(dtype).per_second;
}

}  // namespace hone
