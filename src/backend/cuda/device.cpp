#include "backend/cuda/device.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cuda/check.h"
#include "core/error.h"
#include "core/immortal.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kRingBytes = std::size_t{32} << 20;
constexpr std::size_t kLargestPiece = kRingBytes / 4;
constexpr std::size_t kMostInFlight = 256;  // bounds the number of events when many small uploads fill the ring
constexpr std::size_t kReadingsBytes = std::size_t{64} << 10;

std::atomic<int> chosen_ordinal{0};

class CudaGraph final : public Recording {
 public:
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  void launch() override { check_cuda(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
  cudaStream_t stream_;
};

// Throws Error if work on the GPU, which was waited for, has failed.
void check_work(cudaError_t status) {
  if (status == cudaSuccess) return;
  throw Error(kGpuBackend, text_of("work on the GPU: ", cudaGetErrorName(status), ": ", cudaGetErrorString(status)),
              kAdviceOnWork);
}

}  // namespace

void check_cuda(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return;
  throw Error(kGpuBackend, text_of(call, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status)),
              advice_on(status));
}

void choose_cuda_device(int ordinal) { chosen_ordinal = ordinal; }

int chosen_cuda_device() {
  int devices = 0;
  const bool known = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  return known ? chosen_ordinal % devices : 0;
}

CudaDevice& cuda_device() {
  static Immortal<CudaDevice> device(chosen_cuda_device());
  return device.get();
}

CudaDevice::CudaDevice(int ordinal) : ordinal_(ordinal) {
  const std::string obstacle = cuda_obstacle();
  if (!obstacle.empty()) throw Error(kGpuBackend, obstacle);
  check_cuda(cudaSetDevice(ordinal_), "cudaSetDevice");
  check_cuda(cudaGetDeviceProperties(&properties_, ordinal_), "cudaGetDeviceProperties");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  void* ring = nullptr;
  check_cuda(cudaMallocHost(&ring, kRingBytes), "cudaMallocHost");
  ring_ = static_cast<std::byte*>(ring);
  void* readings = nullptr;
  check_cuda(cudaMallocHost(&readings, kReadingsBytes), "cudaMallocHost");
  readings_buffer_ = static_cast<std::byte*>(readings);
}

Cublas& CudaDevice::cublas() {
  if (!cublas_) cublas_ = std::make_unique<Cublas>();
  return *cublas_;
}

void CudaDevice::retire_oldest() {
  check_cuda(cudaEventSynchronize(in_flight_.front().done), "a copy to the GPU");
  cudaEventDestroy(in_flight_.front().done);
  in_flight_.pop_front();
}

std::byte* CudaDevice::stage(std::size_t bytes) {
  // Pieces are contiguous: wrap around if the rest of the ring is too small, then wait for uploads that still read
  // there.
  if (ring_head_ + bytes > kRingBytes) ring_head_ = 0;
  const std::size_t begin = ring_head_;
  const std::size_t end = begin + bytes;
  const auto overlaps = [&](const InFlight& piece) { return piece.begin < end && begin < piece.end; };
  while (std::any_of(in_flight_.begin(), in_flight_.end(), overlaps)) retire_oldest();
  ring_head_ = align_up(end);
  return ring_ + begin;
}

void CudaDevice::upload(std::byte* device, const void* host, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(host);
  for (std::size_t done = 0; done < bytes; done += kLargestPiece) {
    const std::size_t piece = std::min(kLargestPiece, bytes - done);
    std::byte* staged = stage(piece);
    std::memcpy(staged, from + done, piece);
    check_cuda(cudaMemcpyAsync(device + done, staged, piece, cudaMemcpyHostToDevice, stream_), "a copy to the GPU");
    InFlight flight{static_cast<std::size_t>(staged - ring_), static_cast<std::size_t>(staged - ring_) + piece,
                    nullptr};
    check_cuda(cudaEventCreateWithFlags(&flight.done, cudaEventDisableTiming), "cudaEventCreate");
    check_cuda(cudaEventRecord(flight.done, stream_), "cudaEventRecord");
    in_flight_.push_back(flight);
    if (in_flight_.size() > kMostInFlight) retire_oldest();
  }
}

void CudaDevice::download(void* host, const std::byte* device, std::size_t bytes) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "a copy from the GPU");
  synchronize();
}

std::optional<std::size_t> CudaDevice::room_for_reading(std::size_t bytes) const {
  if (bytes > kReadingsBytes) return std::nullopt;
  if (pending_downloads_.empty()) return 0;
  const Reading& newest = pending_downloads_.back();
  const std::size_t oldest = pending_downloads_.front().begin;
  const std::size_t after = align_up(newest.begin + newest.bytes);
  if (newest.begin < oldest) return after + bytes <= oldest ? std::optional(after) : std::nullopt;
  if (after + bytes <= kReadingsBytes) return after;
  return bytes <= oldest ? std::optional(std::size_t{0}) : std::nullopt;
}

void CudaDevice::download_later(void* host, const std::byte* device, std::size_t bytes) {
  if (bytes == 0) return;
  const std::optional<std::size_t> begin = room_for_reading(bytes);
  if (!begin) return download(host, device, bytes);
  check_cuda(cudaMemcpyAsync(readings_buffer_ + *begin, device, bytes, cudaMemcpyDeviceToHost, stream_),
             "a copy from the GPU");
  pending_downloads_.push_back({host, *begin, bytes, last_mark_ + 1});
}

void CudaDevice::finish_readings(std::uint64_t mark) {
  while (!pending_downloads_.empty() && pending_downloads_.front().mark <= mark) {
    const Reading& reading = pending_downloads_.front();
    std::memcpy(reading.host, readings_buffer_ + reading.begin, reading.bytes);
    pending_downloads_.pop_front();
  }
}

void CudaDevice::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "a copy on the GPU");
}

void CudaDevice::fill(std::byte* device, int byte, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(device, byte, bytes, stream_), "cudaMemset");
}

void CudaDevice::synchronize() {
  check_work(cudaStreamSynchronize(stream_));
  finish_readings(last_mark_ + 1);
}

DeviceMark CudaDevice::mark() {
  cudaEvent_t reached = nullptr;
  if (spare_events_.empty()) {
    check_cuda(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming), "cudaEventCreate");
  } else {
    reached = spare_events_.back();
    spare_events_.pop_back();
  }
  check_cuda(cudaEventRecord(reached, stream_), "cudaEventRecord");
  marks_.push_back({++last_mark_, reached});
  return {last_mark_};
}

void CudaDevice::wait(DeviceMark mark) {
  while (!marks_.empty() && marks_.front().number <= mark.number) {
    if (marks_.front().number == mark.number) check_work(cudaEventSynchronize(marks_.front().reached));
    spare_events_.push_back(marks_.front().reached);
    marks_.pop_front();
  }
  finish_readings(mark.number);
}

std::unique_ptr<Recording> CudaDevice::record(const std::function<void()>& launches) {
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    launches();
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  return std::make_unique<CudaGraph>(graph, stream_);
}

std::byte* CudaDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is not sticky
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error("memory",
                text_of("cannot allocate ", format_bytes(bytes), " on ", name(), ": ", format_bytes(free), " of ",
                        format_bytes(total), " are free, hone holds ", format_bytes(allocated_bytes())),
                advice_on(status));
  }
  check_cuda(status, "cudaMalloc");
  auto* result = static_cast<std::byte*>(data);
  fill(result, 0, bytes);
  return result;
}

void CudaDevice::release(std::byte* data, std::size_t) {
  // Work in progress may use the memory. Its errors are reported by synchronize(), so they are ignored here.
  cudaStreamSynchronize(stream_);
  cudaFree(data);
}

}  // namespace hone
