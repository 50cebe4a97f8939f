// Rounding heads to FP8 pages on a GPU (core/float8_head.h), shared by kv_append and rope_append.
#pragma once

#include "core/float8.h"
#include "ops/cuda_kernel.cuh"
#include "ops/kv_append/kv_append.h"

namespace hone {

// The pages of a layer.
struct Fp8Pages {
  std::uint8_t* keys;  // [pages, block_size, kv_heads, head_dim]
  std::uint8_t* values;
  std::uint8_t* key_scales;  // [pages, kv_heads, block_size]
  std::uint8_t* value_scales;
  std::int64_t slots;
  int block_size, kv_heads, head_dim;

  // Reads them from the four outputs of an operation that begin with `first`.
  [[nodiscard]] static Fp8Pages of(const KernelCall& call, std::size_t first, const KvAppendAttributes& a) {
    const TensorView& keys = call.out(first);
    return {keys.as<std::uint8_t>(),
            call.out(first + 1).as<std::uint8_t>(),
            call.out(first + 2).as<std::uint8_t>(),
            call.out(first + 3).as<std::uint8_t>(),
            keys.dim(0) * keys.dim(1),
            static_cast<int>(keys.dim(1)),
            static_cast<int>(a.kv_heads),
            static_cast<int>(a.head_dim)};
  }
};

// The byte of the scale of a head whose largest magnitude has these bits in f32.
[[nodiscard]] __device__ inline std::uint32_t head_scale(std::uint32_t largest) {
  return e4m3_scale_bits_of_f32(largest) >> 23;
}

inline constexpr int kHeadParts = 8;  // elements of a head that a lane has; heads have at most 256

// Writes the keys and values of a row, `heads` [2 kv_heads, head_dim], to a slot. A warp has a head; all warps of the
// block call it.
template <class T>
__device__ void append_fp8(const Fp8Pages& pages, const T* heads, std::int64_t slot) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const std::int64_t page = slot / pages.block_size;
  const std::int64_t offset = slot - page * pages.block_size;
  for (int at = static_cast<int>(threadIdx.x) / 32; at < 2 * pages.kv_heads; at += warps) {
    const bool of_values = at >= pages.kv_heads;
    const int head = of_values ? at - pages.kv_heads : at;
    float numbers[kHeadParts];
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kHeadParts; ++i) {
      const int column = lane + 32 * i;
      numbers[i] = column < pages.head_dim ? widened(heads[at * pages.head_dim + column]) : 0.0f;
      largest = max(largest, __float_as_uint(numbers[i]) & 0x7FFFFFFFu);
    }
    const std::uint32_t scale = head_scale(__reduce_max_sync(0xFFFFFFFFu, largest));
    const float factor = __uint_as_float((254u - scale) << 23);  // 1 / scale, exactly
    std::uint8_t* to = (of_values ? pages.values : pages.keys) + (slot * pages.kv_heads + head) * pages.head_dim;
#pragma unroll
    for (int i = 0; i < kHeadParts; ++i) {
      const int column = lane + 32 * i;
      if (column >= pages.head_dim) continue;
      to[column] = scale == 255u ? std::uint8_t{0} : e4m3_one(numbers[i] * factor);
    }
    if (lane == 0) {
      (of_values ? pages.value_scales : pages.key_scales)[(page * pages.kv_heads + head) * pages.block_size + offset] =
          static_cast<std::uint8_t>(scale);
    }
  }
}

}  // namespace hone
