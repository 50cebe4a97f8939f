#include "backend/cuda/pinned_memory.h"

#include <cstring>

#include "backend/cuda/check.h"
#include "core/error.h"
#include "core/immortal.h"
#include "core/strings.h"

namespace hone {

PinnedMemory& pinned_memory() {
  static Immortal<PinnedMemory> memory(cuda_device());
  return memory.get();
}

void PinnedMemory::upload(std::byte* to, const void* from, std::size_t bytes) {
  gpu_.synchronize();
  std::memcpy(to, from, bytes);
}

void PinnedMemory::download(void* to, const std::byte* from, std::size_t bytes) {
  gpu_.synchronize();
  std::memcpy(to, from, bytes);
}

void PinnedMemory::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  gpu_.synchronize();
  std::memcpy(to, from, bytes);
}

void PinnedMemory::fill(std::byte* data, int byte, std::size_t bytes) {
  gpu_.synchronize();
  std::memset(data, byte, bytes);
}

std::byte* PinnedMemory::allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is not sticky
    throw Error("memory", text_of("cannot allocate ", format_bytes(bytes), " of pinned host memory"));
  }
  check_cuda(status, "cudaMallocHost");
  std::memset(data, 0, bytes);
  return static_cast<std::byte*>(data);
}

void PinnedMemory::release(std::byte* data, std::size_t) {
  // Work in progress may use the memory. Its errors are reported by synchronize(), so they are ignored here.
  cudaStreamSynchronize(gpu_.stream());
  cudaFreeHost(data);
}

SideCopies& side_copies() {
  static Immortal<SideCopies> copies(cuda_device().stream());
  return copies.get();
}

SideCopies::SideCopies(cudaStream_t stream) : stream_(stream) {
  check_cuda(cudaStreamCreateWithFlags(&to_host_, cudaStreamNonBlocking), "cudaStreamCreate");
  check_cuda(cudaStreamCreateWithFlags(&to_gpu_, cudaStreamNonBlocking), "cudaStreamCreate");
}

void SideCopies::start(int slot, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Slot& events = slots_[slot];
  if (events.started == nullptr) {
    check_cuda(cudaEventCreateWithFlags(&events.started, cudaEventDisableTiming), "cudaEventCreate");
    check_cuda(cudaEventCreateWithFlags(&events.done, cudaEventDisableTiming), "cudaEventCreate");
  }
  const cudaStream_t side = kind == cudaMemcpyDeviceToHost ? to_host_ : to_gpu_;
  check_cuda(cudaEventRecord(events.started, stream_), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(side, events.started, 0), "cudaStreamWaitEvent");
  check_cuda(cudaMemcpyAsync(to, from, bytes, kind, side), "a concurrent copy between host and GPU");
  check_cuda(cudaEventRecord(events.done, side), "cudaEventRecord");
}

void SideCopies::wait(int slot) {
  const auto found = slots_.find(slot);
  HONE_ASSERT(found != slots_.end(), "no copy was started in slot ", slot);
  check_cuda(cudaStreamWaitEvent(stream_, found->second.done, 0), "cudaStreamWaitEvent");
}

}  // namespace hone
