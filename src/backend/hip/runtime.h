// CUDA's names of the runtime library that hone uses, for HIP.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>

using cudaDeviceProp = hipDeviceProp_t;
using cudaError_t = hipError_t;
using cudaEvent_t = hipEvent_t;
using cudaGraph_t = hipGraph_t;
using cudaGraphExec_t = hipGraphExec_t;
using cudaMemcpyKind = hipMemcpyKind;
using cudaStream_t = hipStream_t;

inline constexpr hipError_t cudaSuccess = hipSuccess;
inline constexpr hipError_t cudaErrorMemoryAllocation = hipErrorOutOfMemory;
inline constexpr hipError_t cudaErrorInsufficientDriver = hipErrorInsufficientDriver;
inline constexpr hipError_t cudaErrorNoDevice = hipErrorNoDevice;
inline constexpr hipError_t cudaErrorNotReady = hipErrorNotReady;
inline constexpr hipMemcpyKind cudaMemcpyHostToDevice = hipMemcpyHostToDevice;
inline constexpr hipMemcpyKind cudaMemcpyDeviceToHost = hipMemcpyDeviceToHost;
inline constexpr hipMemcpyKind cudaMemcpyDeviceToDevice = hipMemcpyDeviceToDevice;
inline constexpr hipFuncAttribute cudaFuncAttributeMaxDynamicSharedMemorySize =
    hipFuncAttributeMaxDynamicSharedMemorySize;
inline constexpr unsigned cudaStreamNonBlocking = hipStreamNonBlocking;
inline constexpr unsigned cudaEventDisableTiming = hipEventDisableTiming;
inline constexpr hipStreamCaptureMode cudaStreamCaptureModeThreadLocal = hipStreamCaptureModeThreadLocal;

#define cudaDeviceGetPCIBusId hipDeviceGetPCIBusId
#define cudaDriverGetVersion hipDriverGetVersion
#define cudaEventCreate hipEventCreate
#define cudaEventCreateWithFlags hipEventCreateWithFlags
#define cudaEventDestroy hipEventDestroy
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventRecord hipEventRecord
#define cudaEventSynchronize hipEventSynchronize
#define cudaFree hipFree
#define cudaFreeHost hipHostFree
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaGetErrorName hipGetErrorName
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaGraphDestroy hipGraphDestroy
#define cudaGraphExecDestroy hipGraphExecDestroy
#define cudaGraphLaunch hipGraphLaunch
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemcpy2DAsync hipMemcpy2DAsync
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemsetAsync hipMemsetAsync
#define cudaSetDevice hipSetDevice
#define cudaStreamBeginCapture hipStreamBeginCapture
#define cudaStreamCreateWithFlags hipStreamCreateWithFlags
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamEndCapture hipStreamEndCapture
#define cudaStreamQuery hipStreamQuery
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent

inline hipError_t cudaMalloc(void** data, std::size_t bytes) { return hipMalloc(data, bytes); }
inline hipError_t cudaMallocHost(void** data, std::size_t bytes) { return hipHostMalloc(data, bytes, 0); }
inline hipError_t cudaGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long) {
  return hipGraphInstantiate(executable, graph, nullptr, nullptr, 0);
}
template <class... Parameters>
hipError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), hipFuncAttribute attribute, int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
