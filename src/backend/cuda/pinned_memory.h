// Pinned host memory, and copies between it and a GPU that run concurrently with the GPU's other work.
#pragma once

#include <map>

#include "backend/cuda/device.h"
#include "backend/gpu/runtime.h"

namespace hone {

// Device that only allocates pinned host memory, for host_memory_of().
class PinnedMemory final : public Device {
 public:
  explicit PinnedMemory(CudaDevice& gpu) : gpu_(gpu) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "pinned host memory"; }
  // The following functions wait for the GPU.
  void upload(std::byte* to, const void* from, std::size_t bytes) override;
  void download(void* to, const std::byte* from, std::size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void fill(std::byte* data, int byte, std::size_t bytes) override;
  void synchronize() override { gpu_.synchronize(); }

 private:
  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;

  CudaDevice& gpu_;
};

// Returns the pinned memory of the first GPU.
[[nodiscard]] PinnedMemory& pinned_memory();

// Copies on two side streams, one for each direction, that overlap with the work of the GPU's stream. A copy starts
// after the work submitted to the stream before start(); work submitted after wait() starts after the copy. Both calls
// can be recorded if they are in the same recording. The object lives as long as the process and releases nothing.
class SideCopies {
 public:
  explicit SideCopies(cudaStream_t stream);
  SideCopies(const SideCopies&) = delete;
  SideCopies& operator=(const SideCopies&) = delete;

  // `slot` identifies the copy for wait(), after which it can be reused.
  void start(int slot, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
  void wait(int slot);

 private:
  struct Slot {
    cudaEvent_t started = nullptr;
    cudaEvent_t done = nullptr;
  };

  cudaStream_t stream_;
  cudaStream_t to_host_ = nullptr;
  cudaStream_t to_gpu_ = nullptr;
  std::map<int, Slot> slots_;
};

// Returns the side streams of the first GPU.
[[nodiscard]] SideCopies& side_copies();

}  // namespace hone
