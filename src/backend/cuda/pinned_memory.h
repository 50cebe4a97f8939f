// Pinned memory of the host, and copies between it and a GPU that run beside its other work.
#pragma once

#include <cuda_runtime_api.h>

#include <map>

#include "backend/cuda/device.h"

namespace hone {

// As a device that computes nothing.
class PinnedMemory final : public Device {
 public:
  explicit PinnedMemory(CudaDevice& gpu) : gpu_(gpu) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "pinned host memory"; }
  // These wait for the GPU.
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

// Of the first GPU.
[[nodiscard]] PinnedMemory& pinned_memory();

// Copies beside the GPU's stream, one direction each. Lives as long as the process: nothing is given back. A copy
// starts when the work given to the stream so far is done; after wait() the stream goes on when the copy is. Both may
// be recorded, together.
class SideCopies {
 public:
  explicit SideCopies(cudaStream_t stream);
  SideCopies(const SideCopies&) = delete;
  SideCopies& operator=(const SideCopies&) = delete;

  // `slot` names the copy for wait(); it is free again after that.
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

// Of the first GPU.
[[nodiscard]] SideCopies& side_copies();

}  // namespace hone
