// y = x W^T of rows in e4m3 on Hopper (sm_90a), for generation: from one row to thousands, each with the same bits.
//
// The stages and their sums are those of scaled_grouped_linear/wgmma_scaled.cuh for one matrix: rows of W are those of
// wgmma, and tokens its columns, 8 or a multiple of 16. A token's sum is one chain over stages of 128 terms in
// ascending order, each of which the tensor cores sum from zero, whatever the columns of the tile: what a column's sum
// is does not depend on the others, and m64n8k32 has the bits of m64n192k32 (ScaledRows.DoNotDependOnTheirNumber of
// ops_test).
//
//   plan     rows of W   computing warpgroups   tokens of a tile   stages
//   few         64                1                  64              12      up to 64 rows of x
//   narrow     128                2                  64               8      tiles for all SMs, of fewer than
//   many       128                2                 192               4      W is read once for many tokens
//
// With few tokens the weights are what is read, and a stage takes as long as the instructions of its warps: two warps
// take turns in copying W, one copies the tokens in one box of as many as a tile has, one places scales, and the
// products of the next stage are started before those of this one are added. The first stages of W, which no earlier
// kernel writes, are copied before these have ended.
#pragma once

#include "ops/scaled_grouped_linear/wgmma_scaled.cuh"

namespace hone {

// Shared memory of a block of kGroupsOf computing warpgroups.
template <int kGroupsOf, int kMost, int kStagesOf>
struct RowsPlan {
  static constexpr GroupedProduct kProduct = GroupedProduct::kForward;
  static constexpr bool kSumsRows = false;
  static constexpr int kGroups = kGroupsOf;
  static constexpr int kRows = 64 * kGroups;  // of W in a tile
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kColumns = kMost;
  static constexpr int kStages = kStagesOf;
  static constexpr int kStagedColumns = kColumns;
  static constexpr bool kFew = kGroups == 1;
  static constexpr bool kStartsAhead = kColumns == 64;  // the registers of more have no room for two stages
  // Tiles of W that a band has: its tokens are those of the next tiles, so that the L2 cache has W for all of them.
  static constexpr int kBand = kFew ? 1 << 20 : 16;
  static constexpr int kFirstBytes = kRows * kScaledDepth;
  static constexpr int kStageBytes = kFirstBytes + kColumns * kScaledDepth;
  static constexpr int kStaging = kStages * kStageBytes;
  static constexpr int kScalesAhead = 4;                                   // a stage takes less time than a load
  static constexpr int kScaleStride = kColumns / 4 + 4;                    // as in ScaledPlan
  static constexpr int kScales = kStaging + kRows * kStagedColumns * 2;    // f32 [kStages, 4, kScaleStride]
  static constexpr int kTiles = kScales + kStages * kScaleStride * 4 * 4;  // GroupedTile [kStages]
  static constexpr int kBarriers = kTiles + kStages * 32;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8 + 1024;  // the stages begin at a multiple of 1,024
  static_assert(kColumns % 64 == 0 && kBytes <= 232448);
};
using FewRowsPlan = RowsPlan<1, 64, 12>;
using NarrowRowsPlan = RowsPlan<2, 64, 8>;
using ManyRowsPlan = RowsPlan<2, 192, 4>;

// Goes over the tiles of one matrix by tokens in use: bands of W, and in each the tokens in ascending order. One token
// is taken if none is in use, for the first stages of W may be under way already.
template <class Plan>
class DenseOrder {
 public:
  __device__ explicit DenseOrder(const GroupedArgs& args)
      : args_(args),
        tokens_(max(static_cast<int>(args.used.get()), 1)),
        down_(args.rows / Plan::kRows),
        across_((tokens_ + args.width - 1) / args.width) {}

  __device__ bool find(int index, GroupedTile& tile) const {
    if (index >= down_ * across_) return false;
    const int first = down_ <= Plan::kBand ? 0 : index / (Plan::kBand * across_) * Plan::kBand;
    const int rows = min(Plan::kBand, down_ - first);
    const int inner = index - first * across_;
    tile.expert = 0;
    tile.row = (first + inner % rows) * Plan::kRows;
    tile.column = inner / rows * args_.width;
    tile.columns = min(args_.width, tokens_ - tile.column);
    tile.first = 0;
    tile.depth = args_.depth;
    return true;
  }

 private:
  const GroupedArgs& args_;
  int tokens_, down_, across_;
};

template <int kGroups, int kMost, int kStages>
struct TileOrderOf<RowsPlan<kGroups, kMost, kStages>> {
  using Type = DenseOrder<RowsPlan<kGroups, kMost, kStages>>;
};

// Warps that copy: the first two W.
inline constexpr int kScalesWarp = 2;
inline constexpr int kTokensWarp = 3;

struct RowsArgs {
  ScaledArgs scaled;
  const __nv_bfloat16* bias;  // [n] or null
  bool early_weight;          // no earlier kernel writes W
};

// A computing warpgroup.
template <class Plan>
struct RowsCompute : ScaledCompute<Plan> {
  static constexpr int kAhead = 4;
  using Base = ScaledCompute<Plan>;
  using Base::args;
  using Base::kGroups;
  using Base::maps;
  using Base::place;
  using Base::ring;
  using Base::sums;

  // Adds the products of kAhead stages. Those of a stage are started before those of the one before are added; none are
  // under way at a branch, where ptxas would wait for them.
  template <int kCount>
  __device__ void multiply_ahead(const GroupedTile& tile) {
    int step = tile.depth / kScaledDepth % kAhead;
    this->template multiply<kCount>(step);
    for (; step < tile.depth / kScaledDepth; step += kAhead) {
      ScaledRing<Plan> started = ring;
      float c[2][kCount][4];
#pragma unroll
      for (int i = 0; i <= kAhead; ++i) {
        if (i < kAhead) {
          barrier_wait(started.full(), started.parity);
          this->start_stage(c[i % 2], started);
          started.next();
        }
        if (i == 0) continue;
        i < kAhead ? warpgroup_wait<1>() : warpgroup_wait<0>();
        settle(c[(i - 1) % 2]);
        this->add_stage(c[(i - 1) % 2]);
        place.release(ring.empty());
        ring.next();
      }
    }
  }
  template <int kCount>
  __device__ void multiply_width(int groups, const GroupedTile& tile) {
    if constexpr (kCount > kGroups) {
      return;
    } else if (groups == kCount) {
      if constexpr (Plan::kStartsAhead) {
        multiply_ahead<kCount>(tile);
      } else {
        this->template multiply<kCount>(tile.depth / kScaledDepth);
      }
    } else {
      multiply_width<kCount == 1 ? 2 : kCount + 2>(groups, tile);
    }
  }

  __device__ void add_bias(const GroupedTile& tile, const __nv_bfloat16* bias) {
    const __nv_bfloat16* const own =
        bias + tile.row + place.group * 64 + place.thread / 32 * 16 + place.thread % 32 / 4;
    const float low = __bfloat162float(own[0]);
    const float high = __bfloat162float(own[8]);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      sums[i][0] += low;
      sums[i][1] += low;
      sums[i][2] += high;
      sums[i][3] += high;
    }
  }

  // All tiles of the block.
  __device__ void run(const GroupedTile* tiles, const __nv_bfloat16* bias) {
    for (;;) {
      barrier_wait(ring.full(), ring.parity);
      const GroupedTile tile = tiles[ring.stage];
      if (tile.columns == 0) break;
      multiply_width<1>(grouped_width(tile.columns) / 8, tile);
      if (bias != nullptr) add_bias(tile, bias);
      store_transposed(tile, ring, maps.out, args.grouped, place, sums);
    }
    if (place.thread == 0) bulk_wait();
  }
};

// One of the two warps that copy W, every other stage each: the instructions of one thread would take longer than the
// copies.
template <class Plan>
__device__ void copy_weight(ScaledRing<Plan> ring, const ScaledMaps& maps, const RowsArgs& args, GroupedTile* tiles,
                            int part) {
  const ScaledArgs& scaled = args.scaled;
  const int steps = scaled.grouped.depth / kScaledDepth;
  const int early = Plan::kFew && args.early_weight ? min(Plan::kStages, steps) : 0;
  GroupedTile tile{};  // the rows of the first one do not depend on the number of tokens
  tile.row = static_cast<int>(blockIdx.x) % (scaled.grouped.rows / Plan::kRows) * Plan::kRows;
  ScaledRing<Plan> to = ring;
  for (int step = 0; step < early; ++step, to.next()) {
    if (step % 2 == part) copy_scaled_weight(to, maps, scaled, tile, step);
  }
  wait_for_prior_kernels();
  TileOrder<Plan> order(scaled.grouped);
  int stage = 0;  // since the block began
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    for (int step = 0; step < steps; ++step, ++stage, ring.next()) {
      if (stage % 2 != part) continue;
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if (step == 0) tiles[ring.stage] = tile;
      barrier_expect(ring.full(), Plan::kFirstBytes);
      if (stage >= early) copy_scaled_weight(ring, maps, scaled, tile, step);
    }
  }
  if (stage % 2 != part) return;
  barrier_wait(ring.empty(), ring.parity ^ 1);
  tiles[ring.stage].columns = 0;
  barrier_arrive(ring.full());
}

// The warp that copies the tokens, as many as a tile has at most.
template <class Plan>
__device__ void copy_tokens(ScaledRing<Plan> ring, const ScaledMaps& maps, const RowsArgs& args) {
  const GroupedArgs& grouped = args.scaled.grouped;
  const int steps = grouped.depth / kScaledDepth;
  TileOrder<Plan> order(grouped);
  GroupedTile tile{};
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    for (int step = 0; step < steps; ++step, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), grouped.width * kScaledDepth);
      bulk_copy_tile(ring.at() + Plan::kFirstBytes, maps.tokens, step * kScaledDepth, tile.column, ring.full());
    }
  }
  barrier_wait(ring.empty(), ring.parity ^ 1);
  barrier_arrive(ring.full());
}

template <class Plan>
__global__ void HONE_WGMMA_BOUNDS(Plan::kThreads, 1)
    rows_product(const __grid_constant__ ScaledMaps maps, const __grid_constant__ RowsArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char rows_shared[];
  const std::uint32_t begin = shared_address(rows_shared);
  ScaledRing<Plan> ring{{.base = (begin + 1023) / 1024 * 1024}};
  auto* tiles = reinterpret_cast<GroupedTile*>(rows_shared + (ring.base - begin) + Plan::kTiles);
  const int thread = static_cast<int>(threadIdx.x);
  allow_dependent_launch();
  if (thread == 0) {
    for (int stage = 0; stage < Plan::kStages; ++stage) {
      barrier_init(ring.barrier(stage), 3);
      barrier_init(ring.barrier(Plan::kStages + stage), 4 * Plan::kGroups);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (thread < 128) {
    if constexpr (!Plan::kFew) fewer_registers<56>();
    const int warp = thread / 32;
    if (warp == kScalesWarp) {
      wait_for_prior_kernels();
      place_scales<Plan>(ring, args.scaled);
    } else if (thread % 32 == 0 && warp == kTokensWarp) {
      wait_for_prior_kernels();
      copy_tokens(ring, maps, args);
    } else if (thread % 32 == 0) {
      copy_weight(ring, maps, args, tiles, warp);
    } else {
      wait_for_prior_kernels();
    }
  } else {
    if constexpr (!Plan::kFew) more_registers<224>();
    wait_for_prior_kernels();
    const GroupedPlace place{.group = thread / 128 - 1, .thread = thread % 128};
    RowsCompute<Plan> compute{{.ring = ring, .maps = maps, .args = args.scaled, .place = place}};
    compute.run(tiles, args.bias);
  }
#endif
}

}  // namespace hone
