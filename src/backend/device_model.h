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

// Rate of attention within a training step. A sequence of n tokens reaches flops x n / (n + tokens) of useful FLOP/s:
// tiles on the diagonal are half masked, and each block of queries has a beginning and an end.
struct AttentionRate {
  double flops = 0;   // per second, of long sequences
  double tokens = 0;  // with which a sequence reaches half of it
};

// Speed of work within a training step: how fast kernels are in it, and what the links between devices of a host reach.
// Rates are per second, shares are of the device's rates in DeviceModel.
struct StepRates {
  AttentionRate attention_forward;
  AttentionRate attention_backward;
  double head_share = 1;             // products of the head, with its loss, of a large GEMM's rate
  double grouped_forward_share = 1;  // products of experts with full tiles, of a large GEMM's rate
  double grouped_input_gradient_share = 1;
  double grouped_weight_gradient_share = 1;
  double kernel_share = 1;              // kernels limited by memory, of a copy's rate
  double update_share = 1;              // AdamW, of a copy's rate
  double update_8bit_share = 1;         // AdamW with 8-bit states
  double node_seconds = 0;              // from the end of a node to the beginning of the next
  double parallel_tiles = 0;            // tiles of 128 x 128 that are computed at a time
  std::vector<CopyRate> collectives{};  // bus bytes (nccl-tests' busbw) by the bytes of an all-reduce, ascending
  double collective_seconds = 0;        // time of one without bytes
  double send_bytes = 0;                // bytes that a device sends to others, each pair its own, while it receives
  // Share of its time that a collective takes from computation next to it: it needs SMs, memory bandwidth and power.
  double overlap_loss = 0;
};

struct DeviceModel {
  std::string name;
  DeviceRate f32_flops;             // FLOP/s of a large f32 GEMM
  DeviceRate bf16_flops;            // FLOP/s of a large bf16 GEMM with f32 accumulation
  DeviceRate copy_bytes;            // byte/s, read plus written, of a large copy within the device; CPU: all threads
  DeviceRate link_bytes;            // byte/s of a copy between the device and pinned host memory, one direction
  DeviceRate peak_flops;            // peak FLOP/s of dense bf16 with f32 accumulation, from the data sheet
  std::vector<CopyRate> copies{};   // measured rates by ascending size, up to the size of copy_bytes; may be empty
  double memory_bytes = 0;          // as the driver reports it; 0: unknown
  std::optional<StepRates> step{};  // known for few devices

  // Rate of GEMMs of this dtype: bf16_flops for bf16, otherwise f32_flops.
  [[nodiscard]] const DeviceRate& flops(DType dtype) const { return dtype == DType::kBf16 ? bf16_flops : f32_flops; }
};

// Model by which the recomputation pass ranks activations. It is the same for all devices of a kind and independent of
// measurements, because its figures determine the program: the same recipe must give the same program on every machine.
// The figures are those of one CPU core and of an H100 within a training step (docs/performance.md).
[[nodiscard]] DeviceModel built_in_model(DeviceKind kind);
// Row of the table for the device of this name ("NVIDIA H100 80GB HBM3"); all rates are unknown if there is none.
[[nodiscard]] DeviceModel built_in_model(std::string_view name);

// Names of the devices of the table whose StepRates are known, with which `hone plan` can search layouts.
[[nodiscard]] std::vector<std::string> devices_with_step_rates();

// Returns the model of a GPU of the table with StepRates, whose rates are multiplied by the share that the peak of
// `gpu`, if it is known, has of its peak. For GPUs whose rates are unknown.
[[nodiscard]] DeviceModel like_known_gpu(const DeviceModel& gpu);

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
