// Quantization on a GPU; tile.cuh has the layout of a tile.
#include "ops/quantize/tile.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

__global__ void __launch_bounds__(kTileThreads)
    quantize_kernel(const __nv_bfloat16* x, RowCount count, QuantizedPointers to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4] = {};
  const std::int64_t used = count.get();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (part.row + i >= used) continue;
    const uint4 four = __ldcs(reinterpret_cast<const uint4*>(x + (part.row + i) * to.k + part.column));
    words[i][0] = four.x;
    words[i][1] = four.y;
    words[i][2] = four.z;
    words[i][3] = four.w;
  }
  store_tile(words, part, to, memory);
}

void forward(const KernelCall& call) {
  const QuantizedPointers to = quantized_pointers(call);
  if (to.capacity == 0 || to.k == 0) return;
  launch_dependent({tile_count(to), kTileThreads}, stream_of(call), quantize_kernel,
                   static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(0))), row_count(call.in(0)), to);
  check_launch("quantize");
}

// Where one form of a weight is written; null: not wanted.
struct WeightForm {
  std::uint8_t* weight = nullptr;
  float* scale = nullptr;
  std::int64_t stride = 0;  // scales in a row
};

// Where a weight [n, k] and its transposed copy are written.
struct QuantizedWeightPointers {
  WeightForm plain;
  WeightForm transposed;
  std::int64_t n;
  std::int64_t k;
};

// Writes the scale of a block, of `across` in a row of blocks, and after it those that only fill up the row.
__device__ void store_scale(const WeightForm& to, std::int64_t row, std::int64_t column, std::int64_t across,
                            std::uint32_t scale) {
  if (threadIdx.x == 0) to.scale[row * to.stride + column] = __uint_as_float(scale);
  if (column == 0 && across + threadIdx.x < to.stride) to.scale[row * to.stride + across + threadIdx.x] = 1.0f;
}

// Largest magnitude of a block of 128 x 128; every thread gets it.
__device__ std::uint32_t block_magnitude(const std::uint32_t (&words)[8][4], std::uint32_t* shared) {
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) most = pair_max(most, words[i][j] & 0x7FFF7FFFu);
  }
  most = warp_max(max(most & 0xFFFFu, most >> 16));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kTileThreads / 32; ++warp) most = max(most, shared[warp]);
  return most;
}

template <bool kPlain, bool kTransposed>
__global__ void __launch_bounds__(kTileThreads)
    quantize_weight_kernel(const __nv_bfloat16* weight, QuantizedWeightPointers to) {
  __shared__ TileMemory memory;
  __shared__ std::uint32_t maxima[kTileThreads / 32];
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint4 four = __ldcs(reinterpret_cast<const uint4*>(weight + (part.row + i) * to.k + part.column));
    words[i][0] = four.x;
    words[i][1] = four.y;
    words[i][2] = four.z;
    words[i][3] = four.w;
  }
  const std::uint32_t scale = e4m3_scale_bits(block_magnitude(words, maxima));
  const float factor = inverse_of_scale(scale);
  const std::int64_t row = part.row / kTileSide;
  const std::int64_t column = part.column / kTileSide;
  if constexpr (kPlain) {
    store_scale(to.plain, row, column, to.k / kTileSide, scale);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      *reinterpret_cast<uint2*>(to.plain.weight + (part.row + i) * to.k + part.column) = e4m3_eight(words[i], factor);
    }
  }
  if constexpr (kTransposed) {
    store_scale(to.transposed, column, row, to.n / kTileSide, scale);
    float factors[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) factors[j] = factor;
    place_columns(words, factors, memory);
    copy_columns(memory, row * kTileSide, column * kTileSide, to.transposed.weight, to.n, to.n);
  }
}

WeightForm form_of(const KernelCall& call, std::size_t out) {
  const TensorView& scale = call.out(out + QuantizeWeightOut::scale);
  return {call.out(out + QuantizeWeightOut::weight).as<std::uint8_t>(), scale.as<float>(), scale.row_size()};
}

void quantize_weight_forward(const KernelCall& call) {
  const TensorView& weight = call.in(0);
  const auto& forms = call.attributes_as<QuantizeWeightAttributes>();
  QuantizedWeightPointers to{.plain = {}, .transposed = {}, .n = weight.capacity(), .k = weight.row_size()};
  if (forms.plain) to.plain = form_of(call, 0);
  if (forms.transposed) to.transposed = form_of(call, forms.plain ? QuantizeWeightOut::other : 0);
  const auto tiles = static_cast<unsigned>(to.n / kTileSide * (to.k / kTileSide));
  if (tiles == 0) return;
  const auto launch = [&](auto kernel) {
    launch_dependent({tiles, kTileThreads}, stream_of(call), kernel,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(weight)), to);
  };
  if (forms.plain && forms.transposed) {
    launch(quantize_weight_kernel<true, true>);
  } else if (forms.plain) {
    launch(quantize_weight_kernel<true, false>);
  } else {
    launch(quantize_weight_kernel<false, true>);
  }
  check_launch("quantize_weight");
}

}  // namespace

void register_quantize_cuda(KernelRegistry& registry) {
  registry.add("quantize", DeviceKind::kCuda, {forward, {}});
  registry.add("quantize_weight", DeviceKind::kCuda, {quantize_weight_forward, {}});
}

}  // namespace hone
