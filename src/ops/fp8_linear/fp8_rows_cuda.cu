// Launches of the kernel of fp8_rows.cuh: which tiles, forms and stages it has.
#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/cublas.h"
#include "ops/fp8_linear/fp8_cuda.h"
#include "ops/fp8_linear/fp8_rows.cuh"

namespace hone {
namespace {

constexpr std::int64_t kMostRows = 128;    // more rows are computed faster by converted weights
constexpr int kBytesUnderWay = 44 * 1024;  // of W for an SM, which is enough to read at the memory's rate

// A tile: rows of W, and warpgroups that share them.
struct Fp8Tile {
  int rows;
  int warpgroups;
};

// Returns the tile with which the busiest SM is done first. A row is 128 bytes of a stage, a token 256 bytes, which
// come from the L2 cache at some 2.5 times the rate; a stage takes as long as some 24 rows, however few it has.
Fp8Tile fp8_tile(std::int64_t m, std::int64_t n, int tokens, int sm_count) {
  const std::int64_t token_tiles = (m + tokens - 1) / tokens;
  Fp8Tile best{kMostTileRows, 1};
  double best_cost = 0;
  const auto consider = [&](int rows, int warpgroups) {
    const std::int64_t tiles = (n + rows - 1) / rows * token_tiles;
    const std::int64_t rounds = (tiles + sm_count - 1) / sm_count;
    const double cost = static_cast<double>(rounds) * (std::max(rows, 24) + 4.0 + 0.8 * tokens);
    if (best_cost > 0 && cost >= best_cost) return;
    best = {rows, warpgroups};
    best_cost = cost;
  };
  for (int rows = kMostTileRows; rows >= 16; rows -= 8) consider(rows, 1);
  for (int rows = 2 * kMostTileRows; rows > kMostTileRows; rows -= 16) consider(rows, 2);
  return best;
}

struct Fp8Launch {
  const Fp8Product& product;
  bool constant_weight;
  Fp8Tile tile;
  int sm_count;
  cudaStream_t stream;
};

template <int kTokens, int kHalves, int kWarpgroups>
bool launch(const Fp8Launch& launch) {
  using Form = Fp8Form<kTokens, kHalves, kWarpgroups>;
  const GemmArgs& args = launch.product.args;
  const auto kernel = fp8_rows<Form>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < Form::kThreads) return false;  // built for a device without wgmma
  const int tile_rows = launch.tile.rows;
  const auto token_tiles = static_cast<int>(ceil_div(args.m, kTokens));
  const int tiles = static_cast<int>(ceil_div(args.n, tile_rows)) * token_tiles;
  const int stage_bytes = (tile_rows + 2 * kTokens) * kFp8RowBytes;
  const int other_bytes = 1024;  // the ring begins at a multiple of 1,024
  const int stages = std::min(kMostStages, (kSharedBytes - other_bytes) / stage_bytes);
  const int under_way =
      kTokens > 32 ? stages : std::min(stages, static_cast<int>(ceil_div(kBytesUnderWay, tile_rows * kFp8RowBytes)));
  const Fp8RowsArgs rows{.y = static_cast<__nv_bfloat16*>(args.c),
                         .bias = static_cast<const __nv_bfloat16*>(args.bias),
                         .scales = launch.product.scales.data,
                         .ldy = args.ldc,
                         .scale_stride = launch.product.scales.stride,
                         .m = static_cast<int>(args.m),
                         .n = static_cast<int>(args.n),
                         .steps = static_cast<int>(args.k / kFp8StageColumns),
                         .scale_rows = static_cast<int>(launch.product.scales.rows),
                         .tile_rows = tile_rows,
                         .token_tiles = token_tiles,
                         .tiles = tiles,
                         .stages = stages,
                         .under_way = under_way,
                         .constant_weight = launch.constant_weight};
  const auto k = static_cast<cuuint64_t>(args.k);
  const CUtensorMap weight =
      tensor_boxes<3>(args.b, CU_TENSOR_MAP_DATA_TYPE_UINT8, {k, 1, static_cast<cuuint64_t>(args.n)},
                      {k, static_cast<cuuint64_t>(args.ldb)}, {kFp8StageColumns, 1, static_cast<cuuint32_t>(tile_rows)},
                      CU_TENSOR_MAP_SWIZZLE_128B);
  const CUtensorMap x = row_boxes(args.a, args.m, args.lda, 1, args.k, kTokens);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(std::min(tiles, launch.sm_count)), static_cast<unsigned>(Form::kThreads),
                    static_cast<std::size_t>(other_bytes + stages * stage_bytes)},
                   launch.stream, kernel, weight, x, rows);
  check_launch("fp8_rows");
  return true;
}

template <int kTokens>
bool launch_tokens(Fp8Launch part) {
  const GemmArgs& args = part.product.args;
  part.tile = fp8_tile(args.m, args.n, kTokens, part.sm_count);
  if (part.tile.warpgroups == 2) return launch<kTokens, 2, 2>(part);
  return part.tile.rows <= kMostTileRows / 2 ? launch<kTokens, 1, 1>(part) : launch<kTokens, 2, 1>(part);
}

bool takes(const Fp8Product& product) {
  const GemmArgs& args = product.args;
  const auto aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return args.a_type == DType::kBf16 && args.b_type == DType::kU8 && args.c_type == DType::kBf16 &&
         args.transpose_a == Transpose::kNo && args.transpose_b == Transpose::kYes && !args.accumulate &&
         (args.bias == nullptr || args.bias_type == DType::kBf16) && args.m >= 1 && args.m <= kMostRows &&
         args.k >= kFp8StageColumns && args.k % kFp8StageColumns == 0 && args.n % kCublasAlignment == 0 &&
         product.scales.rows % 8 == 0 && args.lda % 8 == 0 && args.ldb % 16 == 0 && args.ldc % 8 == 0 &&
         aligned(args.a) && aligned(args.b) && aligned(args.c);
}

}  // namespace

bool launch_fp8_rows(const Fp8Product& product, bool constant_weight, cudaStream_t stream) {
  if (!takes(product)) return false;
  const CudaDevice& device = cuda_device();
  if (device.compute_capability() != 90) return false;
  const Fp8Launch launch{product, constant_weight, {}, device.sm_count(), stream};
  const std::int64_t m = product.args.m;
  if (m <= 8) return launch_tokens<8>(launch);
  if (m <= 16) return launch_tokens<16>(launch);
  if (m <= 32) return launch_tokens<32>(launch);
  return launch_tokens<kMostTokens>(launch);
}

}  // namespace hone
