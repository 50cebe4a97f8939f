// The part of HIP's runtime API that hone uses, emulated on the CPU (tests/support/hip/emulator.h). Names, values and
// meanings are those of ROCm's hip_runtime_api.h. Everything runs when it is submitted.
#pragma once

#include <cstddef>

enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInsufficientDriver = 35,
  hipErrorNoDevice = 100,
  hipErrorNotReady = 600,
  hipErrorStreamCaptureInvalidated = 901,
};
enum hipMemcpyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice };
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum hipStreamCaptureMode { hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal };

inline constexpr unsigned hipStreamNonBlocking = 1;
inline constexpr unsigned hipEventDisableTiming = 2;

struct hipDeviceProp_t {
  char name[256];
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  int warpSize;
  int multiProcessorCount;
  int major, minor;
};

using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;
using hipGraph_t = struct ihipGraph*;
using hipGraphExec_t = struct hipGraphExec*;

hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device);
hipError_t hipDriverGetVersion(int* version);
hipError_t hipSetDevice(int device);
hipError_t hipGetLastError();
const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);

hipError_t hipMalloc(void** data, std::size_t bytes);
hipError_t hipFree(void* data);
hipError_t hipHostMalloc(void** data, std::size_t bytes, unsigned flags);
hipError_t hipHostFree(void* data);
hipError_t hipMemGetInfo(std::size_t* available, std::size_t* total);
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                            std::size_t height, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemsetAsync(void* to, int byte, std::size_t bytes, hipStream_t stream);

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags = 0);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, void* error_node, char* log,
                               std::size_t log_bytes);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value);
