// Quantization on a GPU; tile.cuh has the layout of a tile.
#include "ops/quantize/few_rows.cuh"
#include "ops/quantize/tile.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

__device__ void load_eight(const __nv_bfloat16* from, std::uint32_t (&words)[4]) {
  const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from));
  memcpy(words, &four, sizeof(four));
}

template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads)
    quantize_kernel(const __nv_bfloat16* x, RowCount count, QuantizedViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4] = {};
  const int used = part.rows_before(count.get());
  const auto stride = static_cast<std::uint32_t>(to.k);
  const __nv_bfloat16* const from = x + part.row * to.k + part.column;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < used) load_eight(from + static_cast<std::uint32_t>(i) * stride, words[i]);
  }
  store_tile<kColumns>(words, part, to, memory);
}

__global__ void __launch_bounds__(kTileThreads)
    quantize_few_kernel(const __nv_bfloat16* x, RowCount count, QuantizedViews to) {
  begin_dependent_kernel();
  quantize_few_rows(to, count.get(), [&](std::int64_t row, std::int64_t column, std::uint32_t(&words)[4]) {
    load_eight(x + row * to.k + column, words);
  });
}

void forward(const KernelCall& call) {
  const QuantizedViews to = quantized_views(call);
  if (to.capacity == 0 || to.k == 0) return;
  if (has_few_rows(to)) {
    launch_dependent({few_rows_blocks(to), kTileThreads}, stream_of(call), quantize_few_kernel,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(0))), row_count(call.in(0)),
                     to);
    return check_launch("quantize");
  }
  with_columns(to, [&]<TileColumns kColumns>() {
    launch_dependent({tile_count(to), kTileThreads}, stream_of(call), quantize_kernel<kColumns>,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(0))), row_count(call.in(0)),
                     to);
  });
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

template <bool kPlain, bool kTransposed>
__global__ void __launch_bounds__(kTileThreads)
    quantize_weight_kernel(const __nv_bfloat16* weight, QuantizedWeightPointers to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    load_eight(weight + (part.row + i) * to.k + part.column, words[i]);
  }
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) most = pair_max(most, two_rows(words[i], words[i + 1]));
  const std::uint32_t scale = e4m3_scale_bits(block_maximum(most, memory));
  const std::uint32_t twice = e4m3_factor(scale) * 0x10001u;
  const std::int64_t row = part.row / kTileSide;
  const std::int64_t column = part.column / kTileSide;
  if constexpr (kPlain) {
    store_block_scale(scale, row, column, to.k / kTileSide, to.plain.scale, to.plain.stride);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint2 bytes = twice != 0 ? e4m3_eight(words[i], twice) : uint2{};
      *reinterpret_cast<uint2*>(to.plain.weight + (part.row + i) * to.k + part.column) = bytes;
    }
  }
  if constexpr (kTransposed) {
    store_block_scale(scale, column, row, to.n / kTileSide, to.transposed.scale, to.transposed.stride);
    place_columns(words, {twice, twice, twice, twice}, memory);
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
  if (forms.transposed) to.transposed = form_of(call, forms.transposed_out());
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
  registry.add("quantize_weight_into", DeviceKind::kCuda, {quantize_weight_forward, {}});
}

}  // namespace hone
