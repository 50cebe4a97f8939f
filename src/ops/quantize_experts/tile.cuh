// Quantization of a tile of 128 rows of one expert and 128 columns on a GPU, which quantize_experts and the operations
// that it is fused with share (ops/quantize/tile.cuh).
#pragma once

#include "ops/quantize/tile.cuh"
#include "ops/quantize_experts/quantize_experts.h"

namespace hone {

// 128 rows of an expert, or what is left of them: where they begin among all rows.
struct ExpertRows {
  int first = 0;
  int count = 0;
};

// Finds the rows of block `block` of the padded rows. All lanes of a warp call it. Without rows: behind the last
// expert.
[[nodiscard]] __device__ inline ExpertRows find_expert_rows(const std::int32_t* start, int experts, int block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;  // blocks of the experts before
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane;
    const int first = expert < experts ? start[expert] : 0;
    const int count = expert < experts ? start[expert + 1] - first : 0;
    const int blocks = (count + kTileSide - 1) / kTileSide;
    const int up_to = warp_sum_up_to(blocks);
    const int all = __shfl_sync(0xFFFFFFFFu, up_to, 31);
    if (block - before < all) {
      const int found = __popc(__ballot_sync(0xFFFFFFFFu, up_to <= block - before));
      const int inner = (block - before - __shfl_sync(0xFFFFFFFFu, up_to - blocks, found)) * kTileSide;
      return {__shfl_sync(0xFFFFFFFFu, first, found) + inner,
              min(__shfl_sync(0xFFFFFFFFu, count, found) - inner, kTileSide)};
    }
    before += all;
  }
  return {};
}

// Clears the rows from `used` on, as quantize does. Blocks of the grid share them.
__device__ inline void clear_unused_rows(std::int64_t used, const QuantizedViews& to) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kTileThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  auto* const words = reinterpret_cast<uint4*>(to.rows);
  for (std::int64_t i = used * (to.k / 16) + thread; i < to.capacity * (to.k / 16); i += stride) words[i] = {};
  const std::int64_t rest = to.capacity - used;
  for (std::int64_t i = thread; i < rest * (to.k / kTileSide); i += stride) {
    to.row_scale[i / rest * to.capacity + used + i % rest] = 1.0f;
  }
}

// Where a kernel writes: `rows` has the rows, `padded` the columns.
struct ExpertViews {
  QuantizedViews rows;
  QuantizedViews padded;
  const std::int32_t* start;
  int experts;
};

// The tile of a block.
struct ExpertTile {
  TilePart place;  // among the padded rows
  TilePart part;   // among the rows of x
  int used = 0;    // of the thread's eight rows
  bool empty;      // there are no such rows

  // In a matrix of k columns.
  __device__ ExpertTile(std::int64_t k, const ExpertViews& to) : place(k), part(place) {
    const ExpertRows tile = find_expert_rows(to.start, to.experts, static_cast<int>(place.tile_row() / kTileSide));
    empty = tile.count == 0;
    part.row += tile.first - place.tile_row();
    used = part.rows_before(std::int64_t{tile.first} + tile.count);
  }
};

// Quantizes a tile: words[i] has row i of the thread's part. All threads of the block call it.
template <TileColumns kColumns>
__device__ inline void store_expert_tile(const std::uint32_t (&words)[8][4], const ExpertTile& tile,
                                         const ExpertViews& to, TileMemory& memory) {
  const std::uint32_t most = row_maxima(words);
  if constexpr (kColumns == TileColumns::kVectors) place_column_maxima(words, memory);
  store_tile_rows<true>(words, most, tile.part, to.rows, memory, tile.used);
  store_tile_columns<kColumns>(words, most, tile.place, to.padded, memory);
}

// The outputs of a call, which begin with those of quantize_experts.
[[nodiscard]] inline ExpertViews expert_views(const KernelCall& call, const TensorView& start) {
  const auto& attributes = call.attributes_as<QuantizeExpertsAttributes>();
  const QuantizedViews rows = quantized_views(call, attributes.blocks);
  QuantizedViews padded = rows;
  padded.capacity = call.out(QuantizeOut::columns).row_size();
  return {rows, padded, start.as<std::int32_t>(), static_cast<int>(attributes.experts)};
}

// Calls body.operator()<columns>() with the form of the columns.
template <class Body>
void with_expert_columns(const ExpertViews& to, const Body& body) {
  if (to.padded.column_scale_stride > 0) {
    body.template operator()<TileColumns::kBlocks>();
  } else {
    body.template operator()<TileColumns::kVectors>();
  }
}

}  // namespace hone
