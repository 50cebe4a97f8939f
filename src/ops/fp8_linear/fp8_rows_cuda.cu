// Launches of the kernels of fp8_stream.cuh and fp8_rows.cuh: which tiles, forms and stages they have.
#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/cublas.h"
#include "ops/fp8_linear/fp8_cuda.h"
#include "ops/fp8_linear/fp8_rows.cuh"
#include "ops/fp8_linear/fp8_stream.cuh"

namespace hone {
namespace {

constexpr std::int64_t kMostRows = 128;         // more rows are computed faster by converted weights
constexpr std::int64_t kMostStreamRows = 16;    // of fp8_stream.cuh
constexpr int kMostWarps = 8, kMostPairs = 16;  // of a tile of it: with one unit each, with two

// A tile: rows of W, and how they are shared: by `parts` warpgroups, or by warps that have `parts` units each.
struct Fp8Tile {
  int rows;
  int parts;
};

// Finds the tile with which the busiest SM is done first. A row is 128 bytes of a stage, a token 256 bytes, which come
// from the L2 cache at some 2.5 times the rate; a stage takes as long as some 24 rows, however few it has.
class TileSearch {
 public:
  TileSearch(std::int64_t m, std::int64_t n, int tokens, int sm_count)
      : token_tiles_((m + tokens - 1) / tokens), n_(n), tokens_(tokens), sm_count_(sm_count) {}
  void consider(const Fp8Tile& tile) {
    const std::int64_t tiles = (n_ + tile.rows - 1) / tile.rows * token_tiles_;
    const std::int64_t rounds = (tiles + sm_count_ - 1) / sm_count_;
    const double cost = static_cast<double>(rounds) * (std::max(tile.rows, 24) + 4.0 + 0.8 * tokens_);
    if (best_cost_ > 0 && cost >= best_cost_) return;
    best_ = tile;
    best_cost_ = cost;
  }
  [[nodiscard]] const Fp8Tile& best() const { return best_; }

 private:
  std::int64_t token_tiles_, n_;
  int tokens_, sm_count_;
  Fp8Tile best_{};
  double best_cost_ = 0;
};

struct Fp8Launch {
  const Fp8Product& product;
  bool constant_weight;
  int sm_count;
  cudaStream_t stream;
};

struct Fp8Kernel {
  void (*function)(CUtensorMap, CUtensorMap, Fp8RowsArgs);
  int threads;
  int most_threads;  // of its launch bounds
  int tokens;        // of a tile
  int tile_rows;
  int blocks;  // of 128 columns, in a stage
};

bool launch(const Fp8Kernel& kernel, const Fp8Launch& launch) {
  const GemmArgs& args = launch.product.args;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel.function), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kernel.most_threads) return false;  // built for a device without wgmma
  const int tile_rows = kernel.tile_rows;
  const auto token_tiles = static_cast<int>(ceil_div(args.m, kernel.tokens));
  const int tiles = static_cast<int>(ceil_div(args.n, tile_rows)) * token_tiles;
  const int stage_bytes = kernel.blocks * (tile_rows + 2 * kernel.tokens) * kFp8RowBytes;
  const int other_bytes = 1024;  // the ring begins at a multiple of 1,024
  const int stages = std::min(kMostStages, (kSharedBytes - other_bytes) / stage_bytes);
  const int under_way = static_cast<int>(ceil_div(kBytesUnderWay, kernel.blocks * tile_rows * kFp8RowBytes));
  const Fp8RowsArgs rows{.y = static_cast<__nv_bfloat16*>(args.c),
                         .bias = static_cast<const __nv_bfloat16*>(args.bias),
                         .scales = launch.product.scales.data,
                         .ldy = args.ldc,
                         .scale_stride = launch.product.scales.stride,
                         .m = static_cast<int>(args.m),
                         .n = static_cast<int>(args.n),
                         .steps = static_cast<int>(args.k / kFp8BlockColumns),
                         .blocks = kernel.blocks,
                         .scale_rows = static_cast<int>(launch.product.scales.rows),
                         .tile_rows = tile_rows,
                         .token_tiles = token_tiles,
                         .tiles = tiles,
                         .stages = stages,
                         .under_way = kernel.tokens > 32 ? stages : std::min(stages, under_way),
                         .constant_weight = launch.constant_weight};
  constexpr int kUnitWords = kFp8UnitBytes / 4;
  const CUtensorMap weight = tensor_boxes<3>(
      args.b, CU_TENSOR_MAP_DATA_TYPE_UINT32,
      {kUnitWords, static_cast<cuuint64_t>(rows.steps), static_cast<cuuint64_t>(args.n / kFp8UnitRows)},
      {kFp8UnitBytes, static_cast<cuuint64_t>(args.k * kFp8UnitRows)},
      {kUnitWords, static_cast<cuuint32_t>(kernel.blocks), static_cast<cuuint32_t>(tile_rows / kFp8UnitRows)},
      CU_TENSOR_MAP_SWIZZLE_NONE);
  const CUtensorMap x = tensor_boxes<3>(
      args.a, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      {kPartColumns, static_cast<cuuint64_t>(args.m), static_cast<cuuint64_t>(args.k / kPartColumns)},
      {static_cast<cuuint64_t>(args.lda) * 2, kRowBytes},
      {kPartColumns, static_cast<cuuint32_t>(kernel.tokens), static_cast<cuuint32_t>(2 * kernel.blocks)},
      CU_TENSOR_MAP_SWIZZLE_128B);
  check_cuda(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(std::min(tiles, launch.sm_count)), static_cast<unsigned>(kernel.threads),
                    static_cast<std::size_t>(other_bytes + stages * stage_bytes)},
                   launch.stream, kernel.function, weight, x, rows);
  check_launch("fp8_rows");
  return true;
}

template <int kTokens, int kHalves, int kWarpgroups, int kBlocks>
bool launch_rows(const Fp8Launch& product, int tile_rows) {
  using Form = Fp8Form<kTokens, kHalves, kWarpgroups, kBlocks>;
  return launch({.function = fp8_rows<Form>,
                 .threads = Form::kThreads,
                 .most_threads = Form::kThreads,
                 .tokens = kTokens,
                 .tile_rows = tile_rows,
                 .blocks = kBlocks},
                product);
}

// One warpgroup. A wait costs as much as some links, so that its small tiles have stages of two blocks.
template <int kTokens, int kHalves>
bool launch_small_rows(const Fp8Launch& product, int tile_rows) {
  if (product.product.args.k % (2 * kFp8BlockColumns) == 0)
    return launch_rows<kTokens, kHalves, 1, 2>(product, tile_rows);
  return launch_rows<kTokens, kHalves, 1, 1>(product, tile_rows);
}

template <int kTokens>
bool launch_rows(const Fp8Launch& product) {
  const GemmArgs& args = product.product.args;
  TileSearch search(args.m, args.n, kTokens, product.sm_count);
  for (int rows = kMostTileRows; rows >= 16; rows -= 8) search.consider({rows, 1});
  for (int rows = 2 * kMostTileRows; rows > kMostTileRows; rows -= 16) search.consider({rows, 2});
  const Fp8Tile& tile = search.best();
  if (tile.parts == 2) return launch_rows<kTokens, 2, 2, 1>(product, tile.rows);
  return tile.rows <= kMostTileRows / 2 ? launch_small_rows<kTokens, 1>(product, tile.rows)
                                        : launch_small_rows<kTokens, 2>(product, tile.rows);
}

template <int kTokens, int kUnits, int kWarps, int kBlocks>
bool launch_stream(const Fp8Launch& product, int tile_rows) {
  using Form = Fp8StreamForm<kTokens, kUnits, kWarps, kBlocks>;
  return launch({.function = fp8_stream<Form>,
                 .threads = tile_rows / (kUnits * kFp8UnitRows) * 32 + kCopyingThreads,
                 .most_threads = Form::kMostThreads,
                 .tokens = kTokens,
                 .tile_rows = tile_rows,
                 .blocks = kBlocks},
                product);
}

template <int kTokens>
bool launch_stream(const Fp8Launch& product) {
  const GemmArgs& args = product.product.args;
  TileSearch search(args.m, args.n, kTokens, product.sm_count);
  for (int warps = kMostWarps; warps >= 2; --warps) search.consider({warps * kFp8UnitRows, 1});
  for (int warps = kMostPairs; 2 * warps > kMostWarps; --warps) search.consider({2 * warps * kFp8UnitRows, 2});
  const Fp8Tile& tile = search.best();
  if (tile.parts == 2) return launch_stream<kTokens, 2, kMostPairs, 1>(product, tile.rows);
  if (args.k % (4 * kFp8BlockColumns) == 0) return launch_stream<kTokens, 1, kMostWarps, 4>(product, tile.rows);
  if (args.k % (2 * kFp8BlockColumns) == 0) return launch_stream<kTokens, 1, kMostWarps, 2>(product, tile.rows);
  return launch_stream<kTokens, 1, kMostWarps, 1>(product, tile.rows);
}

bool takes(const Fp8Product& product) {
  const GemmArgs& args = product.args;
  const auto aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return args.a_type == DType::kBf16 && args.b_type == DType::kU8 && args.c_type == DType::kBf16 &&
         args.transpose_a == Transpose::kNo && args.transpose_b == Transpose::kYes && !args.accumulate &&
         (args.bias == nullptr || args.bias_type == DType::kBf16) && args.m >= 1 && args.m <= kMostRows &&
         product.in_fragments && args.k >= kFp8BlockColumns && args.lda % 8 == 0 && args.ldb == args.k &&
         args.ldc % 8 == 0 && aligned(args.a) && aligned(args.b) && aligned(args.c);
}

}  // namespace

bool launch_fp8_rows(const Fp8Product& product, bool constant_weight, cudaStream_t stream) {
  if (!takes(product)) return false;
  const CudaDevice& device = cuda_device();
  if (device.compute_capability() != 90) return false;
  const Fp8Launch launch{product, constant_weight, device.sm_count(), stream};
  const std::int64_t m = product.args.m;
  if (m <= 8) return launch_stream<8>(launch);
  if (m <= kMostStreamRows) return launch_stream<16>(launch);
  if (m <= 32) return launch_rows<32>(launch);
  return launch_rows<kMostTokens>(launch);
}

}  // namespace hone
