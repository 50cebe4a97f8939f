// The tiles of the grouped products of wgmma_product.cuh: their shape, their place in shared memory and the order in
// which blocks take them.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/tile_store.cuh"
#include "backend/cuda/wgmma.cuh"
#include "ops/cuda_kernel.cuh"

namespace hone {

// y = x W^T, dx = dy W (the rows of a tile are those of W and those of W^T), dW += dy^T x.
enum class GroupedProduct { kForward, kInput, kWeight };

inline constexpr int kGroupedRows = 128;   // rows of a tile: 64 for each of the two warpgroups that compute
inline constexpr int kGroupedDepth = 64;   // terms of the sums in a stage
inline constexpr int kGroupedPart = 8192;  // bytes of 64 rows of 64 columns
inline constexpr int kGroupedThreads = 3 * 128;
inline constexpr int kFewTokens = 32;  // tiles of up to this many tokens are copied in boxes of 8

// Shared memory of a block. kMost is the largest number of columns of a tile, kStaged of those that are in shared
// memory on the way to device memory.
template <GroupedProduct kProductOf, int kMost, int kStagesOf, int kStaged>
struct GroupedPlan {
  static constexpr GroupedProduct kProduct = kProductOf;
  static constexpr bool kSumsRows = kProduct == GroupedProduct::kWeight;
  static constexpr bool kPads = false;
  static constexpr bool kTokenRows = false;
  static constexpr int kColumns = kMost;
  static constexpr int kStages = kStagesOf;
  static constexpr int kStagedColumns = kStaged;
  static constexpr int kFirstBytes = kGroupedRows * kGroupedDepth * 2;
  static constexpr int kStageBytes = kFirstBytes + kColumns * kGroupedDepth * 2;
  static constexpr int kStaging = kStages * kStageBytes;
  static constexpr int kStagingBytes = kGroupedRows * kStaged * 2;
  static constexpr int kTiles = kStaging + kStagingBytes;  // GroupedTile [kStages]
  static constexpr int kBarriers = kTiles + kStages * 32;
  static constexpr int kBytes = kBarriers + (2 * kStages + 2) * 8 + 1024;  // the stages begin at a multiple of 1,024
};

// A tile: the part of the result that a block computes at a time.
struct alignas(16) GroupedTile {
  std::int32_t expert;
  std::int32_t row;      // the first, of an expert's matrix
  std::int32_t column;   // the first: a row of y or dx, or a column of dW
  std::int32_t columns;  // 0 ends the work of a block
  std::int32_t first;    // of the terms of the sum: 0, or a row of dy and x
  std::int32_t depth;    // terms of the sum
  std::int32_t padding[2];

  [[nodiscard]] __device__ int steps() const { return (depth + kGroupedDepth - 1) / kGroupedDepth; }
};

// The value of lane 0. ptxas knows that all lanes have it: what is computed from such values alone, and what a branch
// on them selects, has registers of the warp, in which wgmma takes its operands.
[[nodiscard]] __device__ inline int of_warp(int value) { return __shfl_sync(0xFFFFFFFFu, value, 0); }
[[nodiscard]] __device__ inline GroupedTile of_warp(const GroupedTile& tile) {
  return {.expert = of_warp(tile.expert),
          .row = of_warp(tile.row),
          .column = of_warp(tile.column),
          .columns = of_warp(tile.columns),
          .first = of_warp(tile.first),
          .depth = of_warp(tile.depth)};
}

// Columns that are multiplied for `columns` in use: 8, 16 or a multiple of 16.
[[nodiscard]] __device__ inline int grouped_width(int columns) { return columns <= 8 ? 8 : (columns + 15) / 16 * 16; }

struct GroupedArgs {
  const std::int32_t* start;  // [experts + 1]
  int experts;
  int rows;               // of an expert's y^T, dx^T or dW
  int columns;            // of dW
  int depth;              // terms of the sums for y and dx
  std::int64_t capacity;  // rows of y and dx
  void* out;              // y or dx [capacity, rows]; dW [experts x rows, columns]
  // Null, or the flag of dW: 0 if it is to be written as if it were zero before, and of experts without rows too.
  const float* accumulated = nullptr;
  // The rows of x in use and the columns of a tile, of a product by one matrix (DenseOrder).
  RowCount used = {};
  int width = 0;
};

// To be called after the kernels before.
[[nodiscard]] __device__ inline bool overwrites(const GroupedArgs& args) {
  return args.accumulated != nullptr && *args.accumulated == 0;
}

// Finds the place of a tile of Plan::kColumns tokens by one of `across` parts of W, of `count` tokens: bands of tokens,
// and in each the rows of W in ascending order, so that the L2 cache has the tokens of a band for all of W.
template <class Plan>
__device__ inline void find_in_bands(int index, int across, int count, GroupedTile& tile) {
  const int above = index / (Plan::kBand * across) * Plan::kBand;  // tiles of tokens before the band
  const int inner = index - above * across;
  const int size = min(Plan::kBand, (count + Plan::kColumns - 1) / Plan::kColumns - above);
  tile.row = inner / size * Plan::kWeightRows;
  tile.column = (above + inner % size) * Plan::kColumns;
  tile.columns = min(Plan::kColumns, count - tile.column);
}

// Goes over the tiles of kGroupedRows x Plan::kColumns of all experts in ascending order of experts. A warp looks at 32
// experts at a time; all its lanes call find() together. With Plan::kPads the rows of each expert are filled up to a
// multiple of 128 (ops/quantize_experts), and `first` and `depth` of a tile count these.
template <class Plan>
class GroupedOrder {
 public:
  __device__ explicit GroupedOrder(const GroupedArgs& args) : args_(args) { load(); }

  // Finds the tile of an index, which is not less than that of the call before. Returns false if there is none.
  __device__ bool find(int index, GroupedTile& tile) {
    int all = __shfl_sync(kAll, inclusive_, 31);
    while (index - before_ >= all) {
      before_ += all;
      base_ += 32;
      if (base_ >= args_.experts) return false;
      load();
      all = __shfl_sync(kAll, inclusive_, 31);
    }
    const int inner = index - before_;
    const int lane = __popc(__ballot_sync(kAll, inclusive_ <= inner));
    const int first = __shfl_sync(kAll, first_, lane);
    const int count = __shfl_sync(kAll, count_, lane);
    const int place = inner - __shfl_sync(kAll, inclusive_ - tiles_, lane);
    const int across = row_groups();
    tile.expert = base_ + lane;
    if constexpr (Plan::kTokenRows) {
      find_in_bands<Plan>(place, across, Plan::kSumsRows ? args_.columns : count, tile);
      if (!Plan::kSumsRows) tile.column += first;
      tile.first = Plan::kSumsRows ? first : 0;
      tile.depth = Plan::kSumsRows ? count : args_.depth;
      return true;
    }
    tile.row = place % across * kGroupedRows;
    const int index_of_columns = place / across;
    if constexpr (Plan::kSumsRows) {
      tile.column = index_of_columns * Plan::kColumns;
      tile.columns = min(Plan::kColumns, args_.columns - tile.column);
      tile.first = first;
      tile.depth = count;
    } else {
      // Tiles of an expert have equal widths, so that none is left with a few columns.
      const int groups = column_groups(count);
      const int width = ((count + groups - 1) / groups + 15) / 16 * 16;
      tile.column = first + index_of_columns * width;
      tile.columns = min(width, count - index_of_columns * width);
      tile.first = 0;
      tile.depth = args_.depth;
    }
    return true;
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFu;
  static constexpr int kTileRows = [] {
    if constexpr (Plan::kTokenRows) return Plan::kWeightRows;
    return kGroupedRows;
  }();
  [[nodiscard]] __device__ int row_groups() const { return (args_.rows + kTileRows - 1) / kTileRows; }
  [[nodiscard]] __device__ int column_groups(int count) const {
    const int columns = Plan::kSumsRows ? args_.columns : count;
    return (columns + Plan::kColumns - 1) / Plan::kColumns;
  }
  __device__ void load() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int expert = base_ + lane;
    first_ = expert < args_.experts ? args_.start[expert] : 0;
    count_ = expert < args_.experts ? args_.start[expert + 1] - first_ : 0;
    if constexpr (Plan::kPads) {
      count_ = (count_ + kGroupedRows - 1) / kGroupedRows * kGroupedRows;
      const int up_to = warp_sum_up_to(count_);
      first_ = padded_ + up_to - count_;
      padded_ += __shfl_sync(kAll, up_to, 31);
    }
    tiles_ = count_ > 0 ? row_groups() * column_groups(count_) : 0;
    inclusive_ = warp_sum_up_to(tiles_);
  }

  const GroupedArgs& args_;
  int base_ = 0;                           // the first of the 32 experts
  int before_ = 0;                         // tiles of the experts before
  int padded_ = 0;                         // rows of the experts before the next 32, filled up
  int first_, count_, tiles_, inclusive_;  // of this lane's expert: rows, tiles, tiles up to it from base_ on
};

// The order in which the blocks of a plan take tiles.
template <class Plan>
struct TileOrderOf {
  using Type = GroupedOrder<Plan>;
};
template <class Plan>
using TileOrder = typename TileOrderOf<Plan>::Type;

// Addresses in shared memory, and the stage that a warp has come to.
template <class Plan>
struct GroupedRing {
  std::uint32_t base;
  int stage = 0;
  int parity = 0;  // of the phase that ends when the stage is full
  [[nodiscard]] __device__ std::uint32_t barrier(int i) const { return base + Plan::kBarriers + 8 * i; }
  [[nodiscard]] __device__ std::uint32_t at() const { return base + stage * Plan::kStageBytes; }
  [[nodiscard]] __device__ std::uint32_t full() const { return barrier(stage); }
  [[nodiscard]] __device__ std::uint32_t empty() const { return barrier(Plan::kStages + stage); }
  [[nodiscard]] __device__ std::uint32_t old_ready() const { return barrier(2 * Plan::kStages); }
  [[nodiscard]] __device__ std::uint32_t sum_ready() const { return barrier(2 * Plan::kStages + 1); }
  [[nodiscard]] __device__ std::uint32_t staging() const { return base + Plan::kStaging; }
  __device__ void next() {
    if (++stage < Plan::kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace hone
