// Products of one matrix of rows with scales 1 x 128 by one with scales 128 x 128, both in e4m3, on Hopper (sm_90a), in
// tiles that have the former as rows of wgmma (scaled_grouped_linear/wgmma_tokens.cuh): C = A B^T + bias in bf16, or
// C += A B^T in bf16 or f32. In terms of wgmma_tokens.cuh A has the tokens and B is W.
//
//   plan   rows of A   rows of B   stages   bytes of a stage for 1,024 products
//   wide      128         192         4       1.67
//   tall      256         128         3       1.5, of which 0.5 is copied by the other block of a pair
//
// Tall tiles need an even number of tiles along B.
//
// A sum is one chain over stages of 128 terms in ascending order, in each of which the tensor cores sum from zero, so
// that it has the same bits in both plans, in wgmma_rows.cuh and in cuBLASLt. What is added to C is added in f32 before
// the sum is rounded, once.
#pragma once

#include "ops/scaled_grouped_linear/wgmma_added.cuh"

namespace hone {

using WideTokensPlan = TokensPlan<1, 192, 4, TokensUse::kMatrix>;
using TallTokensPlan = TokensPlan<2, 128, 3, TokensUse::kMatrix>;

// Goes over the tiles of one matrix by the tokens in use. The rows of W of a pair of blocks follow each other.
template <class Plan>
class OneMatrixOrder {
 public:
  __device__ explicit OneMatrixOrder(const GroupedArgs& args)
      : tokens_(static_cast<int>(args.used.get())),
        depth_(args.depth),
        across_((args.rows + Plan::kWeightRows - 1) / Plan::kWeightRows),
        tiles_((tokens_ + Plan::kColumns - 1) / Plan::kColumns * across_) {}

  __device__ bool find(int index, GroupedTile& tile) const {
    if (index >= tiles_) return false;
    if constexpr (Plan::kPair) {
      find_in_bands<Plan>(index / 2, across_ / 2, tokens_, tile);
      tile.row = tile.row * 2 + index % 2 * Plan::kWeightRows;
    } else {
      find_in_bands<Plan>(index, across_, tokens_, tile);
    }
    tile.expert = 0;
    tile.first = 0;
    tile.depth = depth_;
    return true;
  }

 private:
  int tokens_, depth_, across_, tiles_;
};
template <int kParts, int kWeightRows, int kStages>
struct TileOrderOf<TokensPlan<kParts, kWeightRows, kStages, TokensUse::kMatrix>> {
  using Type = OneMatrixOrder<TokensPlan<kParts, kWeightRows, kStages, TokensUse::kMatrix>>;
};

// C = A B^T + bias.
struct WrittenResult {
  static constexpr bool kKeeps = false;
  const __nv_bfloat16* bias;  // [n] or null

  template <class Compute>
  __device__ void take(Compute& compute, const GroupedTile& tile, int) const {
    if (bias != nullptr) add_bias(compute, tile);
    compute.store(tile);
  }
  template <class Compute>
  __device__ void skip(const Compute&, int) const {}
  template <class Compute>
  __device__ void end(const Compute& compute) const {
    if (compute.place.thread == 0) bulk_wait();
  }

 private:
  template <class Compute>
  __device__ void add_bias(Compute& compute, const GroupedTile& tile) const {
    const __nv_bfloat16* const own = bias + tile.row + compute.place.thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < Compute::kGroups; ++i) {
      if (tile.row + i * 8 >= compute.args.grouped.rows) break;
      const float2 terms = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(own + i * 8));
#pragma unroll
      for (int part = 0; part < Compute::kParts; ++part) {
#pragma unroll
        for (int j = 0; j < 4; ++j) compute.sums[part][i][j] += j % 2 == 0 ? terms.x : terms.y;
      }
    }
  }
};

}  // namespace hone
