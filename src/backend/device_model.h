// Performance model of devices: FLOP/s and memory bandwidth. This is the only source of such figures. It has a built-in
// table by device name; rates measured on this machine (backend/measured_rates.h) take precedence.
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
  kUnknown,
  kBuiltIn,   // from the built-in table
  kMeasured,  // on this machine, by hone profile or hone bench
};

struct DeviceRate {
  double per_second = 0;  // 0 if unknown
  RateSource source = RateSource::kUnknown;

  [[nodiscard]] bool is_known() const { return source != RateSource::kUnknown; }
};

// Rate of copies of one size within a device. Copies that fit into a cache are faster than larger ones.
struct CopyRate {
  double bytes = 0;             // read plus written by one copy
  double bytes_per_second = 0;  // read plus written
};

struct DeviceModel {
  std::string name;
  DeviceRate f32_flops;            // FLOP/s of a large f32 GEMM
  DeviceRate bf16_flops;           // FLOP/s of a large bf16 GEMM with f32 accumulation
  DeviceRate copy_bytes;           // byte/s, read plus written, of a large copy within the device; CPU: all threads
  DeviceRate link_bytes;           // byte/s of a copy between the device and pinned host memory, one direction
  DeviceRate peak_flops;           // peak FLOP/s of dense bf16 with f32 accumulation, from the data sheet
  std::vector<CopyRate> copies{};  // measured rates by ascending size, up to the size of copy_bytes; may be empty

  // Rate of GEMMs of this dtype: bf16_flops for bf16, otherwise f32_flops.
  [[nodiscard]] const DeviceRate& flops(DType dtype) const { return dtype == DType::kBf16 ? bf16_flops : f32_flops; }
};

// Model by which the recomputation pass ranks activations. It is the same for all devices of a kind and independent of
// measurements, because its figures determine the program: the same recipe must give the same program on every machine.
// The figures are those of one CPU core and of an H100 within a training step (docs/performance.md).
[[nodiscard]] DeviceModel built_in_model(DeviceKind kind);
// Row of the table for the device of this name ("NVIDIA H100 80GB HBM3"); all rates are unknown if there is none.
[[nodiscard]] DeviceModel built_in_model(std::string_view name);

// Takes each rate from `measured` if it is known there, otherwise from `built_in`.
[[nodiscard]] DeviceModel merged(const DeviceModel& measured, const DeviceModel& built_in);

// Roofline of a device for one dtype.
struct DeviceLimits {
  double copy_bytes_per_second = 0;  // read plus written, of the largest copy
  double flops_per_second = 0;       // of the fastest large GEMM
  std::vector<CopyRate> copies{};    // by ascending size; may be empty

  // Bandwidth for work that moves `bytes`: the best rate among copies of at least bytes / 4, in bytes read plus written
  // per second.
  [[nodiscard]] double bytes_per_second(double bytes) const;
  // Lower bound of the time for this work, in seconds.
  [[nodiscard]] double floor(double flops, double bytes) const;
  // Fraction of the roofline that work done in `seconds` reached, at most 1: measured limits are themselves inexact.
  [[nodiscard]] double reached(double flops, double bytes, double seconds) const;
};

// Returns nullopt if the model does not know the rate of GEMMs of `dtype` or of copies.
[[nodiscard]] std::optional<DeviceLimits> limits_of(const DeviceModel& model, DType dtype);

}  // namespace hone
