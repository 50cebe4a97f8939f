// Stores of y and dx by the products of experts on Hopper: by way of shared memory, as rows of tokens.
#pragma once

#include "ops/grouped_linear/wgmma_tiles.cuh"

namespace hone {

inline constexpr int kGroupedComputing = 256;  // threads of a block that compute
inline constexpr int kGroupedOwnBarrier = 2;   // and 3: named barriers of the two warpgroups

// A computing thread's place.
struct GroupedPlace {
  int group;   // 0 or 1: of the two warpgroups
  int thread;  // of the warpgroup

  // Tells the copying threads that the warp has read a stage, in plain loads too.
  __device__ void release(std::uint32_t empty) const {
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(empty);
  }
};

// Stores a tile of y or dx, whose 64 rows of a warpgroup become columns [tile.row + 64 group, + 64) of rows of tokens.
// write(staged, begin, count) puts the tokens [begin, begin + count) of the tile into shared memory as rows; groups of
// 64 of them leave by bulk copies, those after them, which a box would exceed, by threads.
template <class Plan, class Write>
__device__ void store_tokens(const GroupedTile& tile, const GroupedRing<Plan>& ring, const CUtensorMap& out,
                             const GroupedArgs& args, const GroupedPlace& place, const Write& write) {
  constexpr int kStaged = Plan::kStagedColumns;
  static_assert(Plan::kColumns % kStaged == 0);
  const SharedRows<64> staged{ring.staging() + place.group * (kStaged * 128)};
  const int row = tile.row + place.group * 64;
#pragma unroll
  for (int begin = 0; begin < Plan::kColumns; begin += kStaged) {
    const int count = min(tile.columns - begin, kStaged);
    if (count <= 0) break;
    if (place.thread == 0) bulk_wait_read();
    named_barrier_wait(kGroupedOwnBarrier + place.group, 128);
    write(staged, begin, count);
    fence_async_shared();
    named_barrier_wait(kGroupedOwnBarrier + place.group, 128);
    const int boxes = count / 64;
    if (place.thread == 0) {
      for (int i = 0; i < boxes; ++i) {
        bulk_store_box(out, staged.base + i * kGroupedPart, row, 0, tile.column + begin + i * 64);
      }
      bulk_commit();
    }
    for (int i = boxes * 512 + place.thread; i < count * 8; i += 128) {
      const int column = row + i % 8 * 8;
      if (column >= args.rows) continue;
      auto* to = static_cast<__nv_bfloat16*>(args.out) +
                 static_cast<std::int64_t>(tile.column + begin + i / 8) * args.rows + column;
      *reinterpret_cast<uint4*>(to) = load_shared16(staged.at(i / 8, i % 8));
    }
  }
}

// Packs the sums of 16 columns as bf16: rows 0..7 and 8..15 of the first 8, then of the other 8.
template <int kGroups>
__device__ void pack_columns(const float (&c)[kGroups][4], int pair, std::uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = packed_bf16(c[2 * pair + i / 2][i % 2 * 2], c[2 * pair + i / 2][i % 2 * 2 + 1]);
}

// Stores a tile whose sums have the layout of C of wgmma, its rows in order.
template <class Plan, int kGroups>
__device__ void store_transposed(const GroupedTile& tile, const GroupedRing<Plan>& ring, const CUtensorMap& out,
                                 const GroupedArgs& args, const GroupedPlace& place, const float (&c)[kGroups][4]) {
  const int lane = place.thread % 32;
  store_tokens(tile, ring, out, args, place, [&](const SharedRows<64>& staged, int begin, int count) {
#pragma unroll
    for (int pair = 0; pair < Plan::kStagedColumns / 16; ++pair) {
      if (pair * 16 >= count) break;
      std::uint32_t words[4];
      pack_columns(c, begin / 16 + pair, words);
      store_matrices_transposed(staged.at(pair * 16 + lane / 16 * 8 + lane % 8, place.thread / 32 * 2 + lane / 8 % 2),
                                words);
    }
  });
}

// Clears the rows of y or dx that no expert has.
__device__ inline void clear_unused_rows(const GroupedArgs& args, const GroupedPlace& place) {
  const std::int64_t row_words = args.rows / 8;
  const std::int64_t words = args.capacity * row_words;
  auto* to = static_cast<uint4*>(args.out);
  for (std::int64_t i = args.start[args.experts] * row_words +
                        static_cast<std::int64_t>(blockIdx.x) * kGroupedComputing + place.group * 128 + place.thread;
       i < words; i += static_cast<std::int64_t>(gridDim.x) * kGroupedComputing) {
    to[i] = make_uint4(0, 0, 0, 0);
  }
}

// Clears the matrices of dW whose experts have no rows, and so no tile.
template <class Out>
__device__ void clear_unused_experts(const GroupedArgs& args, const GroupedPlace& place) {
  const std::int64_t words = static_cast<std::int64_t>(args.rows) * args.columns * sizeof(Out) / 16;  // of a matrix
  for (int base = 0; base < args.experts; base += 32) {
    const int expert = base + place.thread % 32;
    const bool unused = expert < args.experts && args.start[expert] == args.start[expert + 1];
    for (unsigned left = __ballot_sync(0xFFFFFFFFu, unused); left != 0; left &= left - 1) {
      auto* to = static_cast<uint4*>(args.out) + (base + __ffs(static_cast<int>(left)) - 1) * words;
      for (std::int64_t i =
               static_cast<std::int64_t>(blockIdx.x) * kGroupedComputing + place.group * 128 + place.thread;
           i < words; i += static_cast<std::int64_t>(gridDim.x) * kGroupedComputing) {
        to[i] = make_uint4(0, 0, 0, 0);
      }
    }
  }
}

}  // namespace hone
