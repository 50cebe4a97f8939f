// What devices do in a second. The one place of such figures: a table of what is known by name, and beside it what was
// measured on this machine (backend/measured_rates.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "core/dtype.h"

namespace hone {

enum class RateSource : std::uint8_t {
  unknown,
  built_in,  // the table of this build
  measured,  // on this machine, by hone profile or hone bench
};

struct DeviceRate {
  double per_second = 0;  // 0 where it is unknown
  RateSource source = RateSource::unknown;

  [[nodiscard]] bool is_known() const { return source != RateSource::unknown; }
};

// Copies of one size within a device: what caches hold moves faster than what memory holds.
struct CopyRate {
  double bytes = 0;             // read plus written
  double bytes_per_second = 0;  // of them
};

struct DeviceModel {
  std::string name;
  DeviceRate f32_flops;       // FLOP/s of a large matrix product of f32
  DeviceRate bf16_flops;      // the same of bf16, summed in f32
  DeviceRate copy_bytes;      // bytes read plus written by a large copy within the device, by all threads of a host
  DeviceRate link_bytes;      // bytes of a copy to or from pinned memory of the host, in one direction
  DeviceRate promised_flops;  // FLOP/s of dense bf16 products with f32 sums, by the maker's data sheet
  std::vector<CopyRate> copies{};  // where measured: by size, ascending, up to that of copy_bytes

  // The rate of products of this type: bf16, else f32.
  [[nodiscard]] const DeviceRate& flops(DType dtype) const { return dtype == DType::bf16 ? bf16_flops : f32_flops; }
};

// What recomputation ranks by: one model for all devices of a kind, on every machine, whatever was measured there. The
// figures are of a step's kernels, a core's and an H100's (docs/performance.md); a change of one changes programs.
[[nodiscard]] DeviceModel built_in_model(DeviceKind kind);
// The table's row of the device of this name ("NVIDIA H100 80GB HBM3"); nothing is known of a name that is not there.
[[nodiscard]] DeviceModel built_in_model(std::string_view name);

// Figure by figure what `measured` knows, else what `built_in` does.
[[nodiscard]] DeviceModel merged(const DeviceModel& measured, const DeviceModel& built_in);

// What bounds work in one dtype on a device.
struct DeviceLimits {
  double copy_bytes_per_second = 0;  // read plus written, of the largest copy
  double flops_per_second = 0;       // of the fastest large product
  std::vector<CopyRate> copies{};    // by size, ascending; may be none

  // The best rate of copies that move a quarter of so many bytes or more.
  [[nodiscard]] double bytes_per_second(double bytes) const;
  // The least time for so much work, in seconds.
  [[nodiscard]] double floor(double flops, double bytes) const;
  // The share of what is possible that so much work in so many seconds is, at most 1: what was reached is possible,
  // however it was measured.
  [[nodiscard]] double reached(double flops, double bytes, double seconds) const;
};

// Nothing where the model does not know products of `dtype` or copies.
[[nodiscard]] std::optional<DeviceLimits> limits_of(const DeviceModel& model, DType dtype);

}  // namespace hone
