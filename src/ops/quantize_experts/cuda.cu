// A block quantizes a tile of 128 rows of one expert and 128 columns (ops/quantize/tile.cuh).
#include "ops/quantize/tile.cuh"
#include "ops/quantize_experts/quantize_experts.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

// 128 rows of an expert, or what is left of them: where they begin among all rows.
struct ExpertRows {
  int first = 0;
  int count = 0;
};

// Finds the rows of block `block` of the padded rows. All lanes of a warp call it. Without rows: behind the last
// expert.
__device__ ExpertRows find_rows(const std::int32_t* start, int experts, int block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;  // blocks of the experts before
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane;
    const int first = expert < experts ? start[expert] : 0;
    const int count = expert < experts ? start[expert + 1] - first : 0;
    const int blocks = (count + kTileSide - 1) / kTileSide;
    int up_to = blocks;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAll, up_to, step);
      if (lane >= step) up_to += other;
    }
    const int all = __shfl_sync(kAll, up_to, 31);
    if (block - before < all) {
      const int found = __popc(__ballot_sync(kAll, up_to <= block - before));
      const int inner = (block - before - __shfl_sync(kAll, up_to - blocks, found)) * kTileSide;
      return {__shfl_sync(kAll, first, found) + inner, min(__shfl_sync(kAll, count, found) - inner, kTileSide)};
    }
    before += all;
  }
  return {};
}

// Clears the rows from `used` on, as quantize does. Blocks of the grid share them.
__device__ void clear_rows(std::int64_t used, const QuantizedViews& to) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kTileThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  auto* const words = reinterpret_cast<uint4*>(to.rows);
  for (std::int64_t i = used * (to.k / 16) + thread; i < to.capacity * (to.k / 16); i += stride) words[i] = {};
  const std::int64_t rest = to.capacity - used;
  for (std::int64_t i = thread; i < rest * (to.k / kTileSide); i += stride) {
    to.row_scale[i / rest * to.capacity + used + i % rest] = 1.0f;
  }
}

// `to` has the rows, `padded` the columns.
template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads)
    quantize_experts_kernel(const __nv_bfloat16* x, const std::int32_t* start, int experts, QuantizedViews to,
                            QuantizedViews padded) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart place(to.k);
  const ExpertRows tile = find_rows(start, experts, static_cast<int>(place.tile_row() / kTileSide));
  clear_rows(start[experts], to);
  if (tile.count == 0) return;
  TilePart part = place;
  part.row += tile.first - place.tile_row();
  const int used = part.rows_before(std::int64_t{tile.first} + tile.count);
  std::uint32_t words[8][4] = {};
  const auto stride = static_cast<std::uint32_t>(to.k);
  const __nv_bfloat16* const from = x + part.row * to.k + part.column;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i >= used) continue;
    const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from + static_cast<std::uint32_t>(i) * stride));
    memcpy(words[i], &four, sizeof(four));
  }
  const std::uint32_t most = row_maxima(words);
  if constexpr (kColumns == TileColumns::kVectors) place_column_maxima(words, memory);
  store_tile_rows<true>(words, most, part, to, memory, used);
  store_tile_columns<kColumns>(words, most, place, padded, memory);
}

void forward(const KernelCall& call) {
  const TensorView& x = call.in(QuantizeExpertsIn::x);
  const auto& attributes = call.attributes_as<QuantizeExpertsAttributes>();
  const TensorView& columns = call.out(QuantizeOut::columns);
  const TensorView& scale = call.out(QuantizeOut::column_scale);
  const QuantizedViews to{.rows = call.out(QuantizeOut::rows).as<std::uint8_t>(),
                          .row_scale = call.out(QuantizeOut::row_scale).as<float>(),
                          .capacity = x.capacity(),
                          .k = x.row_size()};
  QuantizedViews padded = to;
  padded.columns = columns.as<std::uint8_t>();
  padded.column_scale = scale.as<float>();
  padded.column_scale_stride = attributes.blocks ? scale.row_size() : 0;
  padded.capacity = columns.row_size();
  if (to.capacity == 0 || to.k == 0) return;
  with_columns(padded, [&]<TileColumns kColumns>() {
    if constexpr (kColumns != TileColumns::kNone) {
      launch_dependent({tile_count(padded), kTileThreads}, stream_of(call), quantize_experts_kernel<kColumns>,
                       static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(x)),
                       call.in(QuantizeExpertsIn::start).as<std::int32_t>(), static_cast<int>(attributes.experts), to,
                       padded);
    }
  });
  check_launch("quantize_experts");
}

}  // namespace

void register_quantize_experts_cuda(KernelRegistry& registry) {
  registry.add("quantize_experts", DeviceKind::kCuda, {forward, {}});
}

}  // namespace hone
