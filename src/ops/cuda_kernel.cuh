// Building blocks of CUDA kernels: types, vectorised loads and stores, launches, reductions. All kernels sum in a fixed
// order that depends only on sizes, never on which block runs first; there are no floating-point atomics. A row's
// result does not depend on the number of rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/gpu/kernel.cuh"
#include "program/kernel.h"

namespace hone {

// The device type of an element type.
template <class T>
using CudaType = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat16, T>;

// Calls body.operator()<T>() with T = float, __nv_bfloat16 or double, by dtype.
template <class Body>
void for_cuda_floating(DType dtype, const Body& body) {
  for_floating(dtype, [&]<class T>() { body.template operator()<CudaType<T>>(); });
}

// Pointer to the elements of a view; null for an optional operand that is absent.
template <class T>
[[nodiscard]] T* cuda_data(const TensorView& view) {
  if (!view) return nullptr;
  using Host = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, BFloat16, T>;
  return reinterpret_cast<T*>(view.as<Host>());
}

[[nodiscard]] inline CudaDevice& cuda_device_of(const KernelCall& call) {
  return static_cast<CudaDevice&>(*call.device);
}
[[nodiscard]] inline cudaStream_t stream_of(const KernelCall& call) { return cuda_device_of(call).stream(); }

// Number of rows in use of a tensor, read on the device when the kernel runs.
struct RowCount {
  const std::int64_t* used;  // in device memory; null: all rows are in use
  std::int64_t capacity;
  std::int64_t factor = 1;  // rows for each unit of the count
  [[nodiscard]] __device__ std::int64_t get() const { return used != nullptr ? *used * factor : capacity; }
};

[[nodiscard]] inline RowCount row_count(const TensorView& view) {
  const Shape& shape = view.type->shape;
  return {view.device_count, view.capacity(), shape.empty() ? 1 : shape[0].factor};
}

[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The type of sums over T: double for double, otherwise float.
template <class T>
using CudaAccumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
[[nodiscard]] __device__ inline CudaAccumulator<T> widened(T value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(value);
  } else {
    return value;
  }
}

// Converts to T, rounded to nearest even.
template <class T>
[[nodiscard]] __device__ inline T narrowed(CudaAccumulator<T> value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

// `kSize` neighbouring elements that are loaded and stored together; their address is a multiple of their size in
// bytes.
template <class T, int kSize>
struct alignas(sizeof(T) * kSize) Pack {
  T values[kSize];
  [[nodiscard]] __device__ T& operator[](int i) { return values[i]; }
  [[nodiscard]] __device__ const T& operator[](int i) const { return values[i]; }
};

// Loads a pack that is read once. It bypasses the L1 cache, so that the few numbers that every warp reads (counts, the
// learning rate) stay there.
template <class T, int kSize>
[[nodiscard]] __device__ inline Pack<T, kSize> load_streamed(const T* from) {
  Pack<T, kSize> pack;
  if constexpr (sizeof(pack) == 16) {
    const uint4 words = __ldcg(reinterpret_cast<const uint4*>(from));
    memcpy(&pack, &words, sizeof(pack));
  } else {
    pack = *reinterpret_cast<const Pack<T, kSize>*>(from);
  }
  return pack;
}

// Loads a pack that many blocks read and none writes, through the read-only path. The compiler may then move the load
// ahead of earlier computation, and of wait_for_prior_kernels(), instead of placing it where the pack is first used.
template <class T, int kSize>
[[nodiscard]] __device__ inline Pack<T, kSize> load_kept(const T* from) {
  Pack<T, kSize> pack;
  if constexpr (sizeof(pack) == 16) {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
    memcpy(&pack, &words, sizeof(pack));
  } else {
    pack = *reinterpret_cast<const Pack<T, kSize>*>(from);
  }
  return pack;
}

// Stores values in pieces of 16 bytes if their size is a multiple of that; `to` is aligned accordingly. If a thread
// stored them one by one, each of a warp's stores would be a separate transaction with the L2 cache.
template <class T, int kSize>
__device__ inline void store_values(T* to, const T (&values)[kSize]) {
  if constexpr (sizeof(values) % 16 == 0) {
    constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int k = 0; k < kSize; k += kPiece) {
      uint4 words;
      memcpy(&words, values + k, sizeof(words));
      __stwb(reinterpret_cast<uint4*>(to + k), words);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kSize; ++k) to[k] = values[k];
  }
}

// Allows the blocks of the next kernel, if launch_dependent launches it, to start as blocks of this one end
// (programmatic dependent launch).
__device__ inline void allow_dependent_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until everything that earlier kernels wrote is visible. A kernel that launch_dependent launches calls it before
// it reads any of that.
__device__ inline void wait_for_prior_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Both: how a kernel that reads nothing in advance begins. All its blocks do so, because kernels after it rely on it:
// when one kernel has ended, so have all before it.
__device__ inline void begin_dependent_kernel() {
  allow_dependent_launch();
  wait_for_prior_kernels();
}

// Grid, block and dynamic shared memory of a launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  bool early = true;     // false: after the kernel before, if that may write what load_kept() reads
  unsigned cluster = 1;  // blocks that follow each other and run at the same time, next to each other
};

// Launches a kernel so that its blocks may start before the kernel before it in the stream has ended, on compute
// capability 9.0 and later. The kernel must wait (begin_dependent_kernel) before it reads what earlier kernels write
// and before it writes anything. It saves the one to three microseconds between two kernels, also in recorded launches.
template <class... Parameters, class... Arguments>
void launch_dependent(const LaunchShape& shape, cudaStream_t stream, void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
#ifdef HONE_HIP
  kernel<<<shape.grid, shape.block, shape.shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  check_launch("launch");
#else
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (shape.early && cuda_device().compute_capability() >= 90) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
#endif
}

// Elements of T in 16 bytes.
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

// Calls body.operator()<kPack>(), where kPack is the number of elements in 16 bytes if it divides `row_size`, otherwise
// 1.
template <class T, class Body>
void with_pack(std::int64_t row_size, const Body& body) {
  if (row_size % kPackSize<T> == 0) {
    body.template operator()<kPackSize<T>>();
  } else {
    body.template operator()<1>();
  }
}

// Sum over a warp by a fixed tree; every lane gets it.
template <class A>
[[nodiscard]] __device__ inline A warp_sum(A value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lane);
  return value;
}

// Sum of the values of a warp's lanes up to the calling one.
template <class A>
[[nodiscard]] __device__ inline A warp_sum_up_to(A value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const A other = __shfl_up_sync(0xFFFFFFFFu, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// Maximum over a warp; every lane gets it.
template <class A>
[[nodiscard]] __device__ inline A warp_max(A value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const A other = __shfl_xor_sync(0xFFFFFFFFu, value, lane);
    value = other > value ? other : value;
  }
  return value;
}

// Sum over a block by a fixed tree; every thread gets it. All threads call it, a multiple of 32 and at most 1,024 of
// them. `shared` holds 32 values and may be reused after the next __syncthreads(). The barrier in here is reached even
// by a block of a single warp, because a branch would keep the compiler from moving loads across it.
template <class A>
[[nodiscard]] __device__ inline A block_sum(A value, A* shared) {
  value = warp_sum(value);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : A(0));
}

}  // namespace hone
