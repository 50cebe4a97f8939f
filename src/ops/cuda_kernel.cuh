// What CUDA kernels share. Sums are in a fixed order that depends on sizes only, never on which block comes first;
// there are no floating-point atomics. A row's result does not depend on the number of rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "program/kernel.h"

namespace hone {

// The type that kernels compute with for an element type, and the one for sums over it.
template <class T>
using CudaType = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat16, T>;

// body.operator()<T>() with T of float, __nv_bfloat16, double.
template <class Body>
void for_cuda_floating(DType dtype, const Body& body) {
  for_floating(dtype, [&]<class T>() { body.template operator()<CudaType<T>>(); });
}

// The elements of a view; null for an optional one that is not given.
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

// Rows in use of a tensor, read by the kernel when it runs.
struct RowCount {
  const std::int64_t* used;  // null: all
  std::int64_t capacity;
  std::int64_t factor = 1;  // rows a number that is counted
  [[nodiscard]] __device__ std::int64_t get() const { return used != nullptr ? *used * factor : capacity; }
};

[[nodiscard]] inline RowCount row_count(const TensorView& view) {
  const Shape& shape = view.type->shape;
  return {view.device_count, view.capacity(), shape.empty() ? 1 : shape[0].factor};
}

[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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

// Rounded to nearest even.
template <class T>
[[nodiscard]] __device__ inline T narrowed(CudaAccumulator<T> value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

// `kSize` neighbouring elements, loaded and stored as one; their address is a multiple of their size in bytes.
template <class T, int kSize>
struct alignas(sizeof(T) * kSize) Pack {
  T values[kSize];
  [[nodiscard]] __device__ T& operator[](int i) { return values[i]; }
  [[nodiscard]] __device__ const T& operator[](int i) const { return values[i]; }
};

// A pack that is read once: it passes the first-level cache by, where the few numbers that every warp reads (counts,
// the step's rate) then stay.
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

// A pack that many blocks read and none writes: it may come from the first-level cache at any time, so that the
// compiler does not put its load behind what is computed before the pack is needed.
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

// In pieces of 16 bytes where the values fill them; `to` is aligned to as much. One by one, a warp's stores would reach
// the second-level cache as many times.
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

// A number that all lanes read for a later turn of a loop. The compiler does not know that they get the same: else it
// would move it to a register that they share, and wait for it in the turn that loads it.
[[nodiscard]] __device__ inline float load_for_later(const float* from) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}
[[nodiscard]] __device__ inline double load_for_later(const double* from) {
  double value;
  asm volatile("ld.global.f64 %0, [%1];" : "=d"(value) : "l"(from));
  return value;
}

// The next kernel's blocks may take the place of this one's as these end, if launch_behind launches it.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until all that the kernels before this one wrote is there: the first step of a kernel that launch_behind launches.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel behind the last one of this call, a kernel too, whose blocks need not all have ended before the
// first of this one come. It saves about a microsecond.
template <class... Parameters, class... Arguments>
void launch_behind(const KernelCall& call, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream_of(call);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (cuda_device_of(call).compute_capability() >= 90) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
}

// Elements of T in 16 bytes.
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

// body.operator()<kPack>() with as many elements as divide `row_size`: 16 bytes of T, or one.
template <class T, class Body>
void with_pack(std::int64_t row_size, const Body& body) {
  if (row_size % kPackSize<T> == 0) {
    body.template operator()<kPackSize<T>>();
  } else {
    body.template operator()<1>();
  }
}

// Over a warp; every lane gets the sum.
template <class A>
[[nodiscard]] __device__ inline A warp_sum(A value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lane);
  return value;
}

template <class A>
[[nodiscard]] __device__ inline A warp_max(A value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const A other = __shfl_xor_sync(0xFFFFFFFFu, value, lane);
    value = other > value ? other : value;
  }
  return value;
}

// Over a block of a multiple of 32 threads, at most 1,024, all of which call it; every thread gets the sum. `shared`
// holds 32 values; it may be used again after the next __syncthreads(). There is one in here, for a single warp too: a
// branch would keep the compiler from moving loads across.
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
