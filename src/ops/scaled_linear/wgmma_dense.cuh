// Products of one matrix of rows with scales 1 x 128 by one with scales 128 x 128, both in e4m3, on Hopper (sm_90a), in
// tiles that have the former as rows of wgmma (scaled_grouped_linear/wgmma_tokens.cuh): C = A B^T + bias in bf16, or
// C += A B^T in bf16 or f32. In terms of wgmma_tokens.cuh A has the tokens and B is W.
//
//   plan   rows of A   rows of B   stages   bytes of a stage for 1,024 products
//   wide      128         192         4       1.67
//   tall      256         128         3       1.5
//
// A sum is one chain over stages of 128 terms in ascending order, in each of which the tensor cores sum from zero, so
// that it has the same bits in both plans, in wgmma_rows.cuh and in cuBLASLt. What is added to C is added in f32 before
// the sum is rounded, once.
#pragma once

#include "ops/scaled_grouped_linear/wgmma_tokens.cuh"

namespace hone {

using WideTokensPlan = TokensPlan<1, 192, 4, false>;
using TallTokensPlan = TokensPlan<2, 128, 3, false>;

// Goes over the tiles of one matrix by the tokens in use.
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
    find_in_bands<Plan>(index, across_, tokens_, tile);
    tile.expert = 0;
    tile.first = 0;
    tile.depth = depth_;
    return true;
  }

 private:
  int tokens_, depth_, across_, tiles_;
};
template <int kParts, int kWeightRows, int kStages>
struct TileOrderOf<TokensPlan<kParts, kWeightRows, kStages, false>> {
  using Type = OneMatrixOrder<TokensPlan<kParts, kWeightRows, kStages, false>>;
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
  __device__ void skip(const Compute&) const {}
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

// C += A B^T in bf16: a warp copies C to the staging memory while a tile is multiplied, and the sums from there back.
struct AddedResult {
  static constexpr bool kKeeps = true;

  template <class Plan>
  __device__ void keep(const TokensRing<Plan>& ring, const TokensMaps& maps, const ScaledArgs& args) const {
    const auto parts = [&](const GroupedTile& tile) {
      return min((args.grouped.rows - tile.row) / 64, Plan::kWeightParts);
    };
    keep_sums<Plan>(
        ring, maps.out, args.grouped, [&](const GroupedTile& tile) { return (tile.columns + 63) / 64 * parts(tile); },
        [&](const GroupedTile& tile, int i) {
          const int rows = i / parts(tile);
          const int part = i % parts(tile);
          return StagedBox{ring.staged(rows, part), tile.row + part * 64, tile.column + rows * 64};
        });
  }

  template <class Compute>
  __device__ void take(const Compute& compute, const GroupedTile&, int parity) const {
    barrier_wait(compute.ring.old_ready(), parity);
#pragma unroll
    for (int part = 0; part < Compute::kParts; ++part) {
#pragma unroll
      for (int pair = 0; pair < Compute::kGroups / 2; ++pair) {
        const std::uint32_t at = compute.staged(part, pair);
        std::uint32_t words[4];
        load_matrices(words, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&c)[4] = compute.sums[part][2 * pair + i / 2];
          words[i] = packed_bf16(__uint_as_float(words[i] << 16) + c[i % 2 * 2],
                                 __uint_as_float(words[i] & 0xFFFF0000u) + c[i % 2 * 2 + 1]);
        }
        store_matrices(at, words);
      }
    }
    fence_async_shared();
    compute.place.release(compute.ring.sum_ready());
  }
  template <class Compute>
  __device__ void skip(const Compute& compute) const {
    compute.place.release(compute.ring.sum_ready());
  }
  template <class Compute>
  __device__ void end(const Compute&) const {}
};

// C += A B^T in f32, in device memory.
struct WideAddedResult {
  static constexpr bool kKeeps = false;

  template <class Compute>
  __device__ void take(const Compute& compute, const GroupedTile& tile, int) const {
    constexpr int kBatch = 4;  // groups of columns that are loaded before one of them is stored
    const int lane = compute.place.thread % 32;
    const std::int64_t width = compute.args.grouped.rows;
    const int row = tile.column + compute.before() + compute.place.thread / 32 * 16 + lane / 4;
    float* const to = static_cast<float*>(compute.args.grouped.out) + row * width + tile.row + lane % 4 * 2;
    const auto at = [&](int part, int i, int half) -> float2& {
      return *reinterpret_cast<float2*>(to + (part * 64 + half * 8) * width + i * 8);
    };
#pragma unroll
    for (int part = 0; part < Compute::kParts; ++part) {
      if (compute.before() + part * 64 >= tile.columns) break;
#pragma unroll
      for (int begin = 0; begin < Compute::kGroups; begin += kBatch) {
        if (tile.row + begin * 8 >= width) break;
        float2 old[kBatch][2];
#pragma unroll
        for (int i = 0; i < 2 * kBatch; ++i) old[i / 2][i % 2] = at(part, begin + i / 2, i % 2);
#pragma unroll
        for (int i = 0; i < 2 * kBatch; ++i) {
          const float* const c = compute.sums[part][begin + i / 2] + i % 2 * 2;
          at(part, begin + i / 2, i % 2) = make_float2(old[i / 2][i % 2].x + c[0], old[i / 2][i % 2].y + c[1]);
        }
      }
    }
  }
  template <class Compute>
  __device__ void skip(const Compute&) const {}
  template <class Compute>
  __device__ void end(const Compute&) const {}
};

}  // namespace hone
