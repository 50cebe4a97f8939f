// A GPU through CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/device.h"

namespace hone {

// Why no GPU can be used (no driver, one that is too old, no device, compute capability below 8.0), or nothing.
[[nodiscard]] std::string cuda_obstacle();

// A GPU and what the process holds of it: a stream, pinned memory, the handles of libraries. Everything runs on the one
// stream, so that work is done in the order in which it is given. Nothing is given back by a destructor: the device
// lives as long as the process (core/immortal.h says why).
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal);

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return properties_.name; }
  void upload(std::byte* device, const void* host, std::size_t bytes) override;
  void download(void* host, const std::byte* device, std::size_t bytes) override;
  void download_later(void* host, const std::byte* device, std::size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void fill(std::byte* device, int byte, std::size_t bytes) override;
  void synchronize() override;
  std::unique_ptr<Recording> record(const std::function<void()>& launches) override;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] const cudaDeviceProp& properties() const { return properties_; }
  // 90 for sm_90.
  [[nodiscard]] int compute_capability() const { return properties_.major * 10 + properties_.minor; }
  // For grids that only cover work; what fixes the order of a sum must not depend on it (ops/slices.h).
  [[nodiscard]] int multiprocessors() const { return properties_.multiProcessorCount; }
  [[nodiscard]] Cublas& cublas();

 private:
  // Part of the pinned ring that a copy may still read.
  struct InFlight {
    std::size_t begin = 0, end = 0;
    cudaEvent_t done = nullptr;
  };

  // What has been copied to pinned memory, or will have been, for the host.
  struct Reading {
    void* host = nullptr;
    std::size_t begin = 0, bytes = 0;
  };

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;
  // A piece of the ring that no copy reads any more.
  std::byte* stage(std::size_t bytes);
  void retire_oldest();

  int ordinal_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  std::byte* ring_ = nullptr;  // pinned host memory
  std::size_t ring_head_ = 0;
  std::deque<InFlight> in_flight_;
  std::byte* readings_buffer_ = nullptr;  // pinned host memory
  std::vector<Reading> readings_;
  std::unique_ptr<Cublas> cublas_;
};

// The first GPU. Throws Error where there is an obstacle.
[[nodiscard]] CudaDevice& cuda_device();

}  // namespace hone
