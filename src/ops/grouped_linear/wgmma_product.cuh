// The products of all experts on Hopper (sm_90a), bf16 with sums in f32: y = x W^T, dx = dy W, dW += dy^T x.
//
// A tile is 128 rows by up to kMost columns of one expert's y^T, dx^T or dW: 64 rows for each of two warpgroups. Rows
// of x are columns, because wgmma takes any multiple of 8 columns but rows by 64: an expert of 390 tokens has two tiles
// of 208 columns, and one token costs 8.
//
//            terms ->              tokens ->                         terms ->        columns of W ->
//          +-----------+         +-----------+                     +-----------+      +-----------+
//   W or   |  64 (WG 1)|  terms  | x^T, dy^T |               dy^T  |  64 (WG 1)| terms|     x     |
//   W^T    |  64 (WG 2)|    |    +-----------+ -> y^T, dx^T        |  64 (WG 2)|   |  +-----------+ -> dW
//          +-----------+    v                                      +-----------+   v
//
// Shared memory: a ring of stages of 64 terms, each 16 KiB of rows and up to 32 KiB of columns in parts of 64 columns
// (128 bytes, swizzled by 128 bytes); then what is on the way to device memory. One block to an SM.
// Registers of a thread: 232 to compute (up to 128 of them sums), 40 to copy.
//
// Blocks take the tiles in turns (GroupedOrder). `start` is read on the device, so that a recorded launch serves every
// routing. Steps, where full and empty are mbarriers of a stage:
//   1. one thread waits for empty, names the tile if the stage is its first, and fills the stage by bulk copies;
//   2. the computing warps wait for full and start four links of wgmma of 16 terms each. For dx and dW they hold their
//      rows in registers, transposed by ldmatrix;
//   3. they arrive at empty when the links are done: after those of the next stage are started, or before its rows are
//      loaded, while the other warpgroup multiplies;
//   4. after the last stage y or dx are rounded to bf16, transposed into the staging memory and copied from there while
//      the next tile is computed. For dW a warp copies the old values to the staging memory meanwhile (old_ready); the
//      sums are added to them there (sum_ready), and the same warp copies them back. If dW is overwritten, old_ready
//      only says that the staging memory is free, and zeros take the place of the old values.
//
// The bits of a row of y or dx do not depend on the other rows or on the routing: a sum is one chain over the terms in
// steps of 16 in ascending order, begun at zero, whatever the columns of the tile. The sum for dW is a chain over the
// expert's rows in ascending order; the last stage multiplies only whole steps of 16 rows, the last one of them filled
// up with zeros, because the next rows are those of another expert.
#pragma once

#include "ops/grouped_linear/wgmma_copy.cuh"
#include "ops/grouped_linear/wgmma_store.cuh"

namespace hone {

// A computing warpgroup.
template <class Plan>
struct GroupedCompute {
  static constexpr int kGroups = Plan::kColumns / 8;
  static constexpr int kAllBarrier = 1;
  GroupedRing<Plan> ring;
  const GroupedMaps& maps;
  const GroupedArgs& args;
  int group;   // 0 or 1: of the two warpgroups
  int thread;  // of the warpgroup
  float c[kGroups][4];

  [[nodiscard]] __device__ bool leads() const { return thread % 32 == 0; }
  // Tells the copying threads that a warp has read a stage.
  __device__ void release(std::uint32_t empty) const {
    if (leads()) barrier_arrive(empty);
  }

  // Starts the product of 16 terms, `link` of the stage at an address. `held` are the rows that load_link() has loaded.
  template <int kCount>
  __device__ void start_link(std::uint32_t at, int link, const std::uint32_t (&held)[4], int keep) {
    float(&sums)[kCount][4] = reinterpret_cast<float(&)[kCount][4]>(c);
    const std::uint32_t second = at + Plan::kFirstBytes;
    if constexpr (Plan::kProduct == GroupedProduct::kForward) {
      const std::uint64_t own = warpgroup_operand(at + group * kGroupedPart, 0);
      warpgroup_multiply<Major::kK, Major::kK>(sums, own + 2 * link, warpgroup_operand(second, 0) + 2 * link, keep);
    } else if constexpr (Plan::kProduct == GroupedProduct::kInput) {
      warpgroup_multiply<Major::kK>(sums, held, warpgroup_operand(second, 0) + 2 * link, keep);
    } else {
      constexpr int kLink = 16 * 128 / 16;  // 16 rows, as an offset of a descriptor
      warpgroup_multiply<Major::kMn>(sums, held, warpgroup_operand(second, kGroupedPart) + kLink * link, keep);
    }
  }
  // Loads the warp's 16 rows of a link where shared memory has the terms as rows. wgmma could read them there, at the
  // same rate in a loop alone, but whole products were slower with it.
  __device__ void load_link(std::uint32_t at, int link, std::uint32_t (&held)[4]) const {
    if constexpr (Plan::kProduct != GroupedProduct::kForward) {
      const int lane = thread % 32;
      const SharedRows<64> own{at + group * kGroupedPart};
      load_matrices_transposed(held, own.at(link * 16 + lane / 16 * 8 + lane % 8, thread / 32 * 2 + lane / 8 % 2));
    }
  }

  // Clears the rows from `terms` up to a multiple of 16 of the stage at an address, in both operands.
  __device__ void clear_rows(std::uint32_t at, int terms) const {
    constexpr int kChunks = Plan::kStageBytes / kGroupedPart * 8;  // of 16 bytes in a row of all parts
    const int rows = (terms + 15) / 16 * 16 - terms;
    for (int i = group * 128 + thread; i < rows * kChunks; i += kGroupedComputing) {
      const int row = terms + i / kChunks;
      const int chunk = i % kChunks;
      store_zeros16(at + chunk / 8 * kGroupedPart + row * 128 + chunk % 8 * 16);
    }
    fence_async_shared();
    named_barrier_wait(kAllBarrier, kGroupedComputing);
  }

  // Computes the sums of a tile, whose first stage is full.
  template <int kCount>
  __device__ void multiply(int depth) {
    constexpr int kLinks = kGroupedDepth / 16;
    constexpr bool kHolds = Plan::kProduct != GroupedProduct::kForward;
    const int whole = Plan::kSumsRows ? depth / kGroupedDepth : (depth + kGroupedDepth - 1) / kGroupedDepth;
    std::uint32_t held[kLinks][4];
    std::uint32_t before = 0;
    for (int step = 0; step < whole; ++step, ring.next()) {
      barrier_wait(ring.full(), ring.parity);
      if constexpr (kHolds) {
        // The registers are those of the links before. The other warpgroup multiplies meanwhile.
        warpgroup_wait<0>();
        if (before != 0) release(before);
#pragma unroll
        for (int link = 0; link < kLinks; ++link) load_link(ring.at(), link, held[link]);
      }
      warpgroup_fence();
#pragma unroll
      for (int link = 0; link < kLinks; ++link) start_link<kCount>(ring.at(), link, held[link], step > 0 || link > 0);
      warpgroup_commit();
      if constexpr (!kHolds) {
        warpgroup_wait<1>();
        if (before != 0) release(before);
      }
      before = ring.empty();
    }
    if (Plan::kSumsRows && depth % kGroupedDepth != 0) {
      const int terms = depth % kGroupedDepth;
      barrier_wait(ring.full(), ring.parity);
      warpgroup_wait<0>();
      if (before != 0) release(before);
      clear_rows(ring.at(), terms);
#pragma unroll 1
      for (int link = 0; link < (terms + 15) / 16; ++link) {
        load_link(ring.at(), link, held[0]);
        warpgroup_fence();
        start_link<kCount>(ring.at(), link, held[0], whole > 0 || link > 0);
        warpgroup_commit();
        warpgroup_wait<0>();
      }
      before = ring.empty();
      ring.next();
    }
    warpgroup_wait<0>();
    settle(c);
    release(before);
  }
  template <int kCount>
  __device__ void multiply_width(int groups, int depth) {
    if constexpr (kCount > kGroups) {
      return;
    } else if (groups == kCount) {
      multiply<kCount>(depth);
    } else {
      multiply_width<kCount == 1 ? 2 : kCount + 2>(groups, depth);
    }
  }

  // Adds the sums to the bf16 values in the staging memory, or to zeros, as if these were there.
  __device__ void add_staged(const GroupedTile& tile, int parity, bool to_zeros) const {
    const int lane = thread % 32;
    const int row = group * 64 + thread / 32 * 16 + lane % 16;
    barrier_wait(ring.old_ready(), parity);
    constexpr int kBatch = 4;  // pairs of a part of 64 columns, which are loaded before one of them is added
#pragma unroll
    for (int part = 0; part < kGroups / 2 / kBatch; ++part) {
      if (part * 64 >= tile.columns) break;
      const SharedRows<64> staged{ring.staging() + part * (2 * kGroupedPart)};
      std::uint32_t words[kBatch][4] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (!to_zeros) load_matrices(words[i], staged.at(row, i * 2 + lane / 16));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float(&sums)[4] = c[2 * (part * kBatch + i) + j / 2];
          const float low = __uint_as_float(words[i][j] << 16) + sums[j % 2 * 2];
          const float high = __uint_as_float(words[i][j] & 0xFFFF0000u) + sums[j % 2 * 2 + 1];
          words[i][j] = packed_bf16(low, high);
        }
        store_matrices(staged.at(row, i * 2 + lane / 16), words[i]);
      }
    }
    fence_async_shared();
    __syncwarp();
    if (leads()) barrier_arrive(ring.sum_ready());
  }

  // Adds the sums to dW of f32 in device memory, or to zeros, as if these were there.
  __device__ void add_f32(const GroupedTile& tile, bool to_zeros) const {
    const int lane = thread % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile.row + group * 64 + thread / 32 * 16 + lane / 4 + half * 8;
      if (row >= args.rows) continue;
      float* to = static_cast<float*>(args.out) +
                  (static_cast<std::int64_t>(tile.expert) * args.rows + row) * args.columns + tile.column;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const int column = i * 8 + lane % 4 * 2;
        if (column >= tile.columns) break;
        auto* pair = reinterpret_cast<float2*>(to + column);
        const float2 old = to_zeros ? make_float2(0, 0) : *pair;
        *pair = make_float2(old.x + c[i][half * 2], old.y + c[i][half * 2 + 1]);
      }
    }
  }

  // All tiles of the block.
  template <class Out>
  __device__ void run(const GroupedTile* tiles) {
    const bool to_zeros = Plan::kSumsRows && overwrites(args);
    for (int parity = 0;; parity ^= 1) {
      barrier_wait(ring.full(), ring.parity);
      const GroupedTile tile = tiles[ring.stage];
      if (tile.columns == 0) break;
      multiply_width<1>(grouped_width(tile.columns) / 8, tile.depth);
      if constexpr (!Plan::kSumsRows) {
        store_transposed(tile, ring, maps.out, args, {group, thread}, c);
      } else if constexpr (sizeof(Out) == 2) {
        add_staged(tile, parity, to_zeros);
      } else {
        add_f32(tile, to_zeros);
      }
    }
    if (to_zeros) clear_unused_experts<Out>(args, {group, thread});
    if (thread == 0) bulk_wait();
  }
};

// Out is the type of dW, otherwise bf16.
template <class Plan, class Out>
__global__ void HONE_WGMMA_BOUNDS(kGroupedThreads, 1)
    grouped_product(const __grid_constant__ GroupedMaps maps, const __grid_constant__ GroupedArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char grouped_shared[];
  const std::uint32_t begin = shared_address(grouped_shared);
  GroupedRing<Plan> ring{.base = (begin + 1023) / 1024 * 1024};
  auto* tiles = reinterpret_cast<GroupedTile*>(grouped_shared + (ring.base - begin) + Plan::kTiles);
  const int thread = static_cast<int>(threadIdx.x);
  allow_dependent_launch();
  if (thread == 0) {
    for (int stage = 0; stage < Plan::kStages; ++stage) {
      barrier_init(ring.barrier(stage), 1);
      barrier_init(ring.barrier(Plan::kStages + stage), 8);
    }
    barrier_init(ring.old_ready(), 1);
    barrier_init(ring.sum_ready(), 8);
    barrier_init_done();
  }
  __syncthreads();
  wait_for_prior_kernels();
  if (thread < 128) {
    fewer_registers<40>();
    if (thread < 32) {
      copy_tiles<Plan>(
          ring, args, tiles, [](const GroupedTile& tile) { return tile.steps(); },
          [&](const GroupedRing<Plan>& to, const GroupedTile& tile, int step) {
            copy_stage<Plan>(maps, tile, step, to.at(), to.full());
          });
    } else if (thread < 64 && Plan::kSumsRows && sizeof(Out) == 2) {
      keep_sums<Plan>(ring, maps.out, args, boxes_of_columns, [&](const GroupedTile& tile, int i) {
        return StagedBox{ring.staging() + i * kGroupedPart, tile.column + i / 2 * 64, tile.row + i % 2 * 64};
      });
    }
  } else {
    more_registers<232>();
    GroupedCompute<Plan> compute{
        .ring = ring, .maps = maps, .args = args, .group = thread / 128 - 1, .thread = thread % 128};
    compute.template run<Out>(tiles);
    if constexpr (!Plan::kSumsRows) clear_unused_rows(args, {compute.group, compute.thread});
  }
#endif
}

}  // namespace hone
