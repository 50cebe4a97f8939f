// The kernel that widens FP8 pages for many query rows (widened_pages.cuh).
#pragma once

#include "ops/attention/fp8_heads.cuh"
#include "ops/attention/widened_pages.cuh"

namespace hone {

// The number of keys of a sequence that is to be widened, because more than one item of `item_tokens` tokens reads it,
// or 0.
struct WidenedKeys {
  const std::int32_t* cu_seqlens;
  const std::int32_t* starts;
  std::int32_t item_tokens;
  [[nodiscard]] __device__ std::int32_t operator()(std::int32_t sequence) const {
    const std::int32_t tokens = cu_seqlens[sequence + 1] - cu_seqlens[sequence];
    return tokens > item_tokens ? starts[sequence] + tokens : 0;
  }
};

inline constexpr int kWideningThreads = 256;
inline constexpr int kWideningParts = 4;  // of a tile, 32 keys each

// Widens all tiles of `keys.widened`; those of a sequence end with rows of zeros. A block takes a part of a tile of
// keys or of values, and every gridDim.x-th after it.
template <class Keys>
__global__ void __launch_bounds__(kWideningThreads) widen_pages(Keys keys, int head_dim, WidenedKeys keys_of) {
  constexpr int kRows = kWidenedKeys / kWideningParts;
  constexpr int kAhead = 8;  // loads in flight
  begin_dependent_kernel();
  const WidenedPages& to = keys.widened;
  const int chunks = static_cast<int>(keys.stride) / 16;
  const int parts = *to.count * kWideningParts * 2;
  for (int part = static_cast<int>(blockIdx.x); part < parts; part += static_cast<int>(gridDim.x)) {
    const bool of_values = part % 2 != 0;
    const int index = part / 2 / kWideningParts;
    const int first_row = part / 2 % kWideningParts * kRows;
    const WidenedTile owner = to.tiles[index];
    SequenceTile tile{};
    tile.sequence = owner.sequence;
    const int first_key = owner.tile * kWidenedKeys + first_row;
    const int count = keys_of(owner.sequence) - first_key;
    const std::uint8_t* from = of_values ? keys.v : keys.k;
    const std::uint8_t* scales = of_values ? keys.value_scales : keys.key_scales;
    auto* out = reinterpret_cast<uint4*>(of_values ? to.v : to.k) +
                (std::int64_t{index} * kWidenedKeys + first_row) * chunks * 2;
    for (int first = static_cast<int>(threadIdx.x); first < kRows * chunks; first += kAhead * kWideningThreads) {
      uint4 bytes[kAhead];
      std::uint8_t scale[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = first + i * kWideningThreads;
        const int row = at / chunks;
        bytes[i] = make_uint4(0, 0, 0, 0);
        scale[i] = 0;
        if (at < kRows * chunks && row < count) {
          bytes[i] = *reinterpret_cast<const uint4*>(from + keys.offset(tile, first_key + row) + at % chunks * 16);
          scale[i] = scales[keys.scale(tile, first_key + row, at % chunks * 16 / head_dim)];
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = first + i * kWideningThreads;
        if (at >= kRows * chunks) continue;
        const std::uint32_t factor = head_factor(scale[i]);
        out[at * 2] = widened_eight(make_uint2(bytes[i].x, bytes[i].y), factor);
        out[at * 2 + 1] = widened_eight(make_uint2(bytes[i].z, bytes[i].w), factor);
      }
    }
  }
}

}  // namespace hone
