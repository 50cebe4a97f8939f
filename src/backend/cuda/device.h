// Implementation of Device by CUDA or, in a build for HIP, by HIP (backend/gpu/runtime.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/device.h"
#include "backend/gpu/runtime.h"

namespace hone {

// Returns the reason why no GPU can be used (no driver or too old a driver, no device, compute capability below 8.0);
// empty if one can be used.
[[nodiscard]] std::string cuda_obstacle();

// A GPU with a stream, pinned buffers for uploads and downloads, and library handles. All work runs on the one stream
// and therefore in the order of submission. The destructor releases nothing: the device lives as long as the process
// (see core/immortal.h).
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal);

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return properties_.name; }
  void upload(std::byte* device, const void* host, std::size_t bytes) override;
  void download(void* host, const std::byte* device, std::size_t bytes) override;
  void download_later(void* host, const std::byte* device, std::size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void fill(std::byte* device, int byte, std::size_t bytes) override;
  void synchronize() override;
  DeviceMark mark() override;
  void wait(DeviceMark mark) override;
  std::unique_ptr<Recording> record(const std::function<void()>& launches) override;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const cudaDeviceProp& properties() const { return properties_; }
  // Compute capability as a number: 90 for sm_90; 0 for a GPU of AMD, whose versions are others.
  [[nodiscard]] int compute_capability() const;
  // Shared memory that a block can have, in bytes.
  [[nodiscard]] std::size_t shared_bytes_per_block() const;
  // Number of SMs. May determine grid sizes, but never the order of a sum (ops/slices.h): results must not depend on
  // the GPU model.
  [[nodiscard]] int sm_count() const { return properties_.multiProcessorCount; }
  [[nodiscard]] Cublas& cublas();

 private:
  // Part of the pinned ring buffer that an upload may still read.
  struct InFlight {
    std::size_t begin = 0, end = 0;
    cudaEvent_t done = nullptr;
  };

  // Deferred download: synchronize() or wait() copies the bytes from the pinned buffer to `host`.
  struct Reading {
    void* host = nullptr;
    std::size_t begin = 0, bytes = 0;
    std::uint64_t mark = 0;  // number of the first mark after it
  };
  struct Mark {
    std::uint64_t number = 0;
    cudaEvent_t reached = nullptr;
  };

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;
  // Returns a piece of the ring buffer; waits until no upload reads it.
  std::byte* stage(std::size_t bytes);
  void retire_oldest();
  // Returns where in the buffer of readings these bytes fit; nothing if readings under way leave no room.
  [[nodiscard]] std::optional<std::size_t> room_for_reading(std::size_t bytes) const;
  // Hands the bytes of readings before this mark to their hosts.
  void finish_readings(std::uint64_t mark);

  int ordinal_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  std::byte* ring_ = nullptr;  // pinned host memory, ring buffer of uploads
  std::size_t ring_head_ = 0;
  std::deque<InFlight> in_flight_;
  std::byte* readings_buffer_ = nullptr;   // pinned host memory, for download_later()
  std::deque<Reading> pending_downloads_;  // in order; their places follow each other around the buffer
  std::uint64_t last_mark_ = 0;
  std::deque<Mark> marks_;                 // not yet waited for, in order
  std::vector<cudaEvent_t> spare_events_;  // of marks that were reached
  std::unique_ptr<Cublas> cublas_;
};

// Chooses the GPU of this process, modulo the number of GPUs; the first one otherwise. To be called before
// cuda_device().
void choose_cuda_device(int ordinal);
// Returns the number of the GPU of this process.
[[nodiscard]] int chosen_cuda_device();
// Returns that GPU. Throws Error with cuda_obstacle().
[[nodiscard]] CudaDevice& cuda_device();

}  // namespace hone
