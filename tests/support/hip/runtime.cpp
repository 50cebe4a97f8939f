// HIP's runtime API on the CPU: one device, whose memory is the host's, and streams that run everything immediately.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "hip/hip_runtime_api.h"
#include "support/hip/emulator.h"
#include "support/hip/limits.h"

struct ihipGraph {
  std::vector<std::function<void()>> work;
  bool ended = false;  // the capture
};
struct hipGraphExec {
  ihipGraph graph;
};
struct ihipStream_t {
  std::shared_ptr<ihipGraph> graph;
  [[nodiscard]] bool captured() const { return graph && !graph->ended; }
};
struct ihipEvent_t {
  std::shared_ptr<ihipGraph> graph;  // in whose capture it was recorded
};

namespace {

constexpr std::size_t kMemory = std::size_t{1} << 30;

hipError_t allocate(void** data, std::size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*data == nullptr && bytes > 0) return hipErrorOutOfMemory;
  std::memset(*data, 0xFF, bytes);  // new memory is garbage
  return hipSuccess;
}

}  // namespace

namespace hone::emulation {

void submit(hipStream_t stream, std::function<void()> work) {
  if (stream != nullptr && stream->captured()) {
    stream->graph->work.push_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace hone::emulation

hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return hipSuccess;
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int) {
  *properties = {.name = "emulated GPU with waves of 64 lanes",
                 .totalGlobalMem = kMemory,
                 .sharedMemPerBlock = hone::emulation::kSharedBytes,
                 .warpSize = hone::emulation::kWaveLanes,
                 .multiProcessorCount = 4,
                 .major = 9,
                 .minor = 4};
  return hipSuccess;
}
hipError_t hipDriverGetVersion(int* version) {
  *version = 50200000;
  return hipSuccess;
}
hipError_t hipSetDevice(int) { return hipSuccess; }
hipError_t hipGetLastError() { return hipSuccess; }
const char* hipGetErrorName(hipError_t error) { return error == hipSuccess ? "hipSuccess" : "hipError"; }
const char* hipGetErrorString(hipError_t error) { return error == hipSuccess ? "no error" : "an emulated error"; }

hipError_t hipMalloc(void** data, std::size_t bytes) { return allocate(data, bytes); }
hipError_t hipFree(void* data) {
  std::free(data);
  return hipSuccess;
}
hipError_t hipHostMalloc(void** data, std::size_t bytes, unsigned) { return allocate(data, bytes); }
hipError_t hipHostFree(void* data) { return hipFree(data); }
hipError_t hipMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = *total = kMemory;
  return hipSuccess;
}

hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind, hipStream_t stream) {
  hone::emulation::submit(stream, [=] { std::memcpy(to, from, bytes); });
  return hipSuccess;
}
hipError_t hipMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                            std::size_t height, hipMemcpyKind, hipStream_t stream) {
  hone::emulation::submit(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                  width);
    }
  });
  return hipSuccess;
}
hipError_t hipMemsetAsync(void* to, int byte, std::size_t bytes, hipStream_t stream) {
  hone::emulation::submit(stream, [=] { std::memset(to, byte, bytes); });
  return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  *stream = new ihipStream_t;
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  return stream->captured() ? hipErrorStreamCaptureInvalidated : hipSuccess;
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  stream->graph = std::make_shared<ihipGraph>();
  return hipSuccess;
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  stream->graph->ended = true;
  *graph = new ihipGraph(*stream->graph);
  return hipSuccess;
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  *event = new ihipEvent_t;
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  event->graph = stream->graph;
  return hipSuccess;
}
// A stream that waits for captured work is captured too.
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  if (event->graph && !event->graph->ended) stream->graph = event->graph;
  return hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}
hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, void*, char*, std::size_t) {
  *executable = new hipGraphExec{*graph};
  return hipSuccess;
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t) {
  for (const auto& work : executable->graph.work) work();
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  delete graph;
  return hipSuccess;
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  delete executable;
  return hipSuccess;
}
hipError_t hipFuncSetAttribute(const void*, hipFuncAttribute, int bytes) {
  return bytes <= static_cast<int>(hone::emulation::kSharedBytes) ? hipSuccess : hipErrorInvalidValue;
}
