// Launches the kernels of few_rows_kernels.cuh: the tiles that suit a GEMM, and the maps of its operands.
#pragma once

#include <algorithm>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/gemm.h"
#include "ops/linear/few_rows_kernels.cuh"
#include "ops/linear/few_rows_tiles.h"

namespace hone {

// A GEMM of few rows; y has GemmArgs::n columns.
struct FewRowsProduct {
  GemmArgs gemm;
  bool constant_weight;  // no kernel of the same recorded launches writes W
  int sm_count;
  cudaStream_t stream;
};

template <class Out>
struct FewRowsKernel {
  void (*function)(CUtensorMap, CUtensorMap, FewRowsArgs<Out>);
  int threads;
  int parts;        // of a stage
  int tokens;       // of a tile
  int slack_bytes;  // that it may read beyond the last stage
  int under_way;    // bytes of W for an SM that are copied at a time
};

// The map of W, matrices of n rows, in boxes of the same tile_rows rows of each, one after the other.
[[nodiscard]] inline CUtensorMap weight_boxes(const GemmArgs& args, int tile_rows, int matrices) {
  return tensor_boxes<3>(
      args.b, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      {static_cast<cuuint64_t>(args.k), static_cast<cuuint64_t>(args.n), static_cast<cuuint64_t>(matrices)},
      {static_cast<cuuint64_t>(args.ldb) * 2, static_cast<cuuint64_t>(args.n * args.ldb) * 2},
      {kPartColumns, static_cast<cuuint32_t>(tile_rows), static_cast<cuuint32_t>(matrices)},
      CU_TENSOR_MAP_SWIZZLE_128B);
}

template <class Out>
bool launch_tiles(const FewRowsKernel<Out>& kernel, const FewRowsProduct& product, int tile_rows) {
  const GemmArgs& args = product.gemm;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel.function), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kernel.threads) return false;  // built for a device without wgmma
  const std::int64_t token_tiles = ceil_div(args.m, kernel.tokens);
  const auto tiles = static_cast<int>(ceil_div(args.n, tile_rows) * token_tiles);
  const int weight_rows = FewRowsOut<Out>::kMatrices * tile_rows;
  const int stage_bytes = kernel.parts * (weight_rows + kernel.tokens) * kRowBytes;
  const int other_bytes = 1024 + kernel.slack_bytes;  // the ring begins at a multiple of 1,024
  const int stages = std::min(kMostStages, (kSharedBytes - other_bytes) / stage_bytes);
  const int under_way =
      std::min(stages, static_cast<int>(ceil_div(kernel.under_way, kernel.parts * weight_rows * kRowBytes)));
  const FewRowsArgs<Out> rows{.y = static_cast<typename FewRowsOut<Out>::Element*>(args.c),
                              .bias = static_cast<const __nv_bfloat16*>(args.bias),
                              .ldy = args.ldc,
                              .m = static_cast<int>(args.m),
                              .n = static_cast<int>(args.n),
                              .k = static_cast<int>(args.k),
                              .tile_rows = tile_rows,
                              .token_tiles = static_cast<int>(token_tiles),
                              .tiles = tiles,
                              .stages = stages,
                              .under_way = under_way,
                              .constant_weight = product.constant_weight};
  const CUtensorMap weight = weight_boxes(args, tile_rows, FewRowsOut<Out>::kMatrices);
  const CUtensorMap x = row_boxes(args.a, args.m, args.lda, 1, args.k, kernel.tokens);
  check_cuda(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(std::min(tiles, product.sm_count)), static_cast<unsigned>(kernel.threads),
                    static_cast<std::size_t>(other_bytes + stages * stage_bytes)},
                   product.stream, kernel.function, weight, x, rows);
  check_launch("few_rows");
  return true;
}

// W as rows.
template <int kGroups, int kParts, class Out>
bool launch_columns(const FewRowsProduct& product, int tile_rows) {
  return launch_tiles<Out>({.function = few_rows_columns<kGroups, kParts, Out>,
                            .threads = kWarpgroupThreads + kCopyingThreads,
                            .parts = kParts,
                            .tokens = kGroups * 8,
                            .slack_bytes = (kWarpgroupRows - tile_rows) * kRowBytes,
                            .under_way = kBytesUnderWay},
                           product, tile_rows);
}

// Tokens as rows.
template <int kWarpgroups, int kGroups, int kParts, class Out>
bool launch_rows(const FewRowsProduct& product) {
  return launch_tiles<Out>({.function = few_rows_rows<kWarpgroups, kGroups, kParts, Out>,
                            .threads = kWarpgroups * kWarpgroupThreads + kCopyingThreads,
                            .parts = kParts,
                            .tokens = kWarpgroups * kWarpgroupRows,
                            .slack_bytes = 0,
                            .under_way = kSharedBytes},
                           product, kGroups * 8);
}

// Two parts a stage halve the waits, each of which costs as much as some links of a small tile. A stage has both only
// if none of its columns is beyond k. A tile of two matrices has as much in one part.
[[nodiscard]] inline bool has_two_parts(const GemmArgs& args) { return args.k % (2 * kPartColumns) == 0; }

template <int kGroups, class Out>
bool launch_columns_of(const FewRowsProduct& product, int tile_rows) {
  if constexpr (FewRowsOut<Out>::kMatrices == 1) {
    if (has_two_parts(product.gemm)) return launch_columns<kGroups, 2, Out>(product, tile_rows);
  }
  return launch_columns<kGroups, 1, Out>(product, tile_rows);
}

template <int kGroups, class Out>
bool launch_rows_of(const FewRowsProduct& product, int tokens) {
  if constexpr (kGroups >= kLeastWideGroups) {
    if (tokens > kWarpgroupRows) return launch_rows<2, kGroups, 1, Out>(product);
  }
  if constexpr (kGroups <= 8 && FewRowsOut<Out>::kMatrices == 1) {
    if (has_two_parts(product.gemm)) return launch_rows<1, kGroups, 2, Out>(product);
  }
  return launch_rows<1, kGroups, 1, Out>(product);
}

template <class Out, int... kGroups>
bool launch_rows_of(const FewRowsProduct& product, const FewRowsTile& tile, std::integer_sequence<int, kGroups...>) {
  bool done = false;
  const auto launch = [&]<int kOf>() {
    if constexpr (FewRowsOut<Out>::kMatrices * kOf * 8 <= kMostTileRows) {
      done = launch_rows_of<kOf, Out>(product, tile.tokens);
    }
    return true;
  };
  (void)((tile.rows == kGroups * 8 && launch.template operator()<kGroups>()) || ...);
  return done;
}

// Launches the kernel for this product, or returns false and does nothing if the device cannot run it.
template <class Out>
bool launch_product(const FewRowsProduct& product) {
  const GemmArgs& args = product.gemm;
  const FewRowsTile tile = few_rows_tile(args.m, args.n, product.sm_count, FewRowsOut<Out>::kMatrices);
  if (tile.tokens == 8) return launch_columns_of<1, Out>(product, tile.rows);
  if (tile.tokens == 16) return launch_columns_of<2, Out>(product, tile.rows);
  if (tile.tokens == 32) return launch_columns_of<4, Out>(product, tile.rows);
  return launch_rows_of<Out>(product, tile, FewRowsTileGroups{});
}

// True for operands of bf16 at whole packs, with y = x W^T of up to kFewRows rows.
[[nodiscard]] inline bool is_few_rows_product(const GemmArgs& args) {
  const auto aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return args.a_type == DType::kBf16 && args.b_type == DType::kBf16 && args.transpose_a == Transpose::kNo &&
         args.transpose_b == Transpose::kYes && !args.accumulate && args.m >= 1 && args.m <= kFewRows && args.k >= 8 &&
         args.n % 8 == 0 && args.k % 8 == 0 && args.lda % 8 == 0 && args.ldb % 8 == 0 && args.ldc % 8 == 0 &&
         aligned(args.a) && aligned(args.b) && aligned(args.c);
}

}  // namespace hone
