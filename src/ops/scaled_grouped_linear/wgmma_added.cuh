// Results of the products of wgmma_tokens.cuh that are added to what is there, such as gradients of weights: C += A
// B^T, where A is in place of the tokens and B of W. For experts (TokensUse::kGradient) C is dW [experts, n, k], A the
// columns of dy and B those of x, and the sum is over an expert's tokens, filled up to whole stages. What is added to C
// is added in f32 before the sum is rounded, once. If GroupedArgs::accumulated says so, C is overwritten, as if it were
// zero.
#pragma once

#include "ops/scaled_grouped_linear/wgmma_tokens.cuh"

namespace hone {

using WideGradientPlan = TokensPlan<1, 192, 4, TokensUse::kGradient>;
using TallGradientPlan = TokensPlan<2, 128, 3, TokensUse::kGradient>;

// Clears the C of experts that have no tokens, and so no tile, if C is overwritten.
template <class Out, class Compute>
__device__ void end_added(const Compute& compute) {
  if constexpr (Compute::kOfGradient) {
    if (compute.to_zeros) clear_unused_experts<Out>(compute.args.grouped, compute.place);
  }
}

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
    constexpr int kBatch = 4;  // pairs that are loaded before one of them is added
#pragma unroll
    for (int part = 0; part < Compute::kParts; ++part) {
#pragma unroll
      for (int begin = 0; begin < Compute::kGroups / 2; begin += kBatch) {
        std::uint32_t words[kBatch][4] = {};
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (!compute.to_zeros) load_matrices(words[i], compute.staged(part, begin + i));
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float(&c)[4] = compute.sums[part][2 * (begin + i) + j / 2];
            const std::uint32_t old = words[i][j];
            words[i][j] = packed_bf16(__uint_as_float(old << 16) + c[j % 2 * 2],
                                      __uint_as_float(old & 0xFFFF0000u) + c[j % 2 * 2 + 1]);
          }
          store_matrices(compute.staged(part, begin + i), words[i]);
        }
      }
    }
    fence_async_shared();
    compute.place.release(compute.ring.sum_ready());
  }
  // The warpgroup must not be a tile ahead of the other: its arrivals would count as the other's for the tile before.
  template <class Compute>
  __device__ void skip(const Compute& compute, int parity) const {
    barrier_wait(compute.ring.old_ready(), parity);
    compute.place.release(compute.ring.sum_ready());
  }
  template <class Compute>
  __device__ void end(const Compute& compute) const {
    end_added<__nv_bfloat16>(compute);
  }
};

// C += A B^T in f32, in device memory.
struct WideAddedResult {
  static constexpr bool kKeeps = false;

  template <class Compute>
  __device__ void take(const Compute& compute, const GroupedTile& tile, int) const {
    constexpr int kBatch = 4;  // groups of columns that are loaded before one of them is stored
    const int lane = compute.place.thread % 32;
    const std::int64_t width = compute.args.grouped.rows;
    const std::int64_t row = static_cast<std::int64_t>(tile.expert) * compute.args.grouped.columns + tile.column +
                             compute.before() + compute.place.thread / 32 * 16 + lane / 4;
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
        for (int i = 0; i < 2 * kBatch; ++i) {
          old[i / 2][i % 2] = compute.to_zeros ? make_float2(0, 0) : at(part, begin + i / 2, i % 2);
        }
#pragma unroll
        for (int i = 0; i < 2 * kBatch; ++i) {
          const float* const c = compute.sums[part][begin + i / 2] + i % 2 * 2;
          at(part, begin + i / 2, i % 2) = make_float2(old[i / 2][i % 2].x + c[0], old[i / 2][i % 2].y + c[1]);
        }
      }
    }
  }
  template <class Compute>
  __device__ void skip(const Compute&, int) const {}
  template <class Compute>
  __device__ void end(const Compute& compute) const {
    end_added<float>(compute);
  }
};

}  // namespace hone
