// y [m, n] = x [m, k] W[n, k]^T + bias [n] for at most 128 rows of x (decoding), limited by reading W once.
//
// The tensor cores take W as the operand of 64 rows and x as the operand of m columns, so that few rows of x waste
// nothing:
//
//      k ->                  tokens ->                 tokens ->
//    +------+              +----------+              +----------+
//  r |  W   |   (wgmma)  k | x^T      |    ->      r |  y^T     |    r = rows of W in a tile, 16 to 64
//    +------+              +----------+              +----------+
//
// Rows of a tile: the blocks, one for each SM, take tiles in turn. A tile has as many rows, a multiple of 8, as let all
// SMs read for the same time (4096 rows of W: 128 tiles of 32 on 132 SMs). The tensor cores always multiply 64 rows;
// those beyond the tile are what an earlier stage left in shared memory, and their results are not written.
//
// Memory: a ring of stages, each with 64 columns of a tile of W (8 KiB) and of x (128 bytes a token), swizzled by 128
// bytes. All stages together fill shared memory, because some 30 KB of each SM must be under way to cover the latency.
//
// Steps of a stage s:
//   1. the copying thread waits for empty[s] (the four computing warps have arrived), announces the bytes on full[s]
//   and
//      starts two bulk copies;
//   2. the computing warps wait for full[s] and start four wgmma of 16 columns each on the accumulators;
//   3. with the products of the next stage under way those of this one are done (warpgroup_wait<1>): arrive on
//   empty[s].
// The ring runs on from tile to tile, so that the copies of a tile begin while the one before is computed.
//
// Why the result does not depend on m: an accumulator is one chain over k in steps of 16 in ascending order, begun at
// zero; other columns of the operand are other accumulators. The library's kernels without split k do the same, which
// makes the bits those of any larger product.
#include <algorithm>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/check.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/wgmma.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/linear/few_rows_cuda.h"

namespace hone {
namespace {

constexpr int kTileRows = 64;
constexpr int kStageColumns = 64;
constexpr int kWeightBytes = kTileRows * kStageColumns * 2;
constexpr int kComputingThreads = 128;
constexpr int kThreads = kComputingThreads + 32;
constexpr int kSharedBytes = 225 * 1024;  // of the 227 KiB that a block can have
constexpr int kMostStages = 24;

// For up to 8 kGroups tokens.
template <int kGroups>
struct FewRows {
  static constexpr int kTokenBytes = kGroups * 8 * kStageColumns * 2;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kStages = std::min(kMostStages, (kSharedBytes - 1024) / kStageBytes);
  static constexpr int kBytes = kStages * kStageBytes + 1024;  // the ring begins at a multiple of 1,024
};

template <class Out>
struct FewRowsArgs {
  Out* y;                     // [m, n], rows ldy apart
  const __nv_bfloat16* bias;  // [n] or null
  std::int64_t ldy;
  int m, n, k;
  int tile_rows, tiles;
  bool constant_weight;
};

__device__ inline void store(float* to, float value) { *to = value; }
__device__ inline void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16(value); }

template <int kGroups, class Out>
__global__ void HONE_WGMMA_BOUNDS(kThreads, 1)
    few_rows(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x, FewRowsArgs<Out> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Plan = FewRows<kGroups>;
  extern __shared__ __align__(1024) unsigned char few_rows_shared[];
  __shared__ alignas(8) std::uint64_t barriers[2 * Plan::kStages];
  const std::uint32_t ring = (shared_address(few_rows_shared) + 1023) / 1024 * 1024;
  const std::uint32_t full = shared_address(barriers);
  const std::uint32_t empty = full + 8 * Plan::kStages;
  const int thread = static_cast<int>(threadIdx.x);
  allow_dependent_launch();
  if (thread == 0) {
    for (int s = 0; s < Plan::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kComputingThreads / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int steps = (args.k + kStageColumns - 1) / kStageColumns;
  int stage = 0;

  // Copies: one thread runs ahead by up to all stages.
  if (thread >= kComputingThreads) {
    if (thread > kComputingThreads) return;
    const int bytes = args.tile_rows * kStageColumns * 2 + Plan::kTokenBytes;
    // A constant W is read before the kernel before this one has ended: so many steps of it as the ring has stages.
    int early = 0;
    if (args.constant_weight) {
      for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
        for (int step = 0; step < steps && early < Plan::kStages; ++step, ++early) {
          barrier_expect(full + 8 * early, bytes);
          bulk_copy_box(ring + early * Plan::kStageBytes, weight, step * kStageColumns, 0, tile * args.tile_rows,
                        full + 8 * early);
        }
      }
    }
    wait_for_prior_kernels();
    int parity = 1;
    for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
      for (int step = 0; step < steps; ++step) {
        const std::uint32_t at = ring + stage * Plan::kStageBytes;
        if (early > 0) {
          --early;
        } else {
          barrier_wait(empty + 8 * stage, parity);
          barrier_expect(full + 8 * stage, bytes);
          bulk_copy_box(at, weight, step * kStageColumns, 0, tile * args.tile_rows, full + 8 * stage);
        }
        bulk_copy_box(at + kWeightBytes, x, step * kStageColumns, 0, 0, full + 8 * stage);
        if (++stage == Plan::kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    return;
  }

  // Computes: four warps, 16 rows of W each.
  const int warp = thread / 32;
  const int lane = thread % 32;
  int parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    float c[kGroups][4];
    int before = -1;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(full + 8 * stage, parity);
      const std::uint32_t at = ring + stage * Plan::kStageBytes;
      const std::uint64_t a = warpgroup_operand(at, 0);
      const std::uint64_t b = warpgroup_operand(at + kWeightBytes, 0);
      warpgroup_fence();
#pragma unroll
      for (int part = 0; part < kStageColumns / 16; ++part) {
        warpgroup_multiply<Major::kK, Major::kK>(c, a + 2 * part, b + 2 * part, step > 0 || part > 0 ? 1 : 0);
      }
      warpgroup_commit();
      warpgroup_wait<1>();
      if (before >= 0 && lane == 0) barrier_arrive(empty + 8 * before);
      before = stage;
      if (++stage == Plan::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    warpgroup_wait<0>();
    settle(c);
    if (lane == 0) barrier_arrive(empty + 8 * before);

    // Writes: a thread has two rows of W and two tokens in each group of 8 tokens.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int in_tile = warp * 16 + lane / 4 + half * 8;
      const int row = tile * args.tile_rows + in_tile;
      if (in_tile >= args.tile_rows || row >= args.n) continue;
      const float bias = args.bias == nullptr ? 0.0f : __bfloat162float(args.bias[row]);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = group * 8 + lane % 4 * 2 + i;
          if (token >= args.m) continue;
          const float sum = c[group][half * 2 + i];
          store(args.y + token * args.ldy + row, args.bias == nullptr ? sum : sum + bias);
        }
      }
    }
  }
#endif
}

// Rows of W in a tile, for which the busiest SM reads least. A tile costs its rows of W and, more cheaply since they
// come from the L2 cache, the rows of x.
int tile_rows_for(std::int64_t n, int groups, int sm_count) {
  int best = kTileRows;
  double best_cost = 0;
  for (int rows = kTileRows; rows >= 16; rows -= 8) {
    const std::int64_t tiles = (n + rows - 1) / rows;
    const std::int64_t rounds = (tiles + sm_count - 1) / sm_count;
    const double cost = static_cast<double>(rounds) * (rows + 4.0 + 0.4 * groups * 8);
    if (rows < kTileRows && cost >= best_cost) continue;
    best = rows;
    best_cost = cost;
  }
  return best;
}

template <int kGroups, class Out>
bool launch(const GemmArgs& args, bool constant_weight, int sm_count, cudaStream_t stream) {
  const auto kernel = few_rows<kGroups, Out>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kThreads) return false;  // built for a device without wgmma
  const int tile_rows = tile_rows_for(args.n, kGroups, sm_count);
  const int tiles = static_cast<int>((args.n + tile_rows - 1) / tile_rows);
  const FewRowsArgs<Out> rows{.y = static_cast<Out*>(args.c),
                              .bias = static_cast<const __nv_bfloat16*>(args.bias),
                              .ldy = args.ldc,
                              .m = static_cast<int>(args.m),
                              .n = static_cast<int>(args.n),
                              .k = static_cast<int>(args.k),
                              .tile_rows = tile_rows,
                              .tiles = tiles,
                              .constant_weight = constant_weight};
  const CUtensorMap weight = row_boxes(args.b, args.n, args.ldb, 1, args.k, tile_rows);
  const CUtensorMap x = row_boxes(args.a, args.m, args.lda, 1, args.k, kGroups * 8);
  constexpr int kBytes = FewRows<kGroups>::kBytes;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(std::min(tiles, sm_count)), kThreads, kBytes}, stream, kernel, weight, x,
                   rows);
  check_launch("few_rows");
  return true;
}

template <class Out>
bool launch_groups(const GemmArgs& args, bool constant_weight, int sm_count, cudaStream_t stream) {
  if (args.m <= 8) return launch<1, Out>(args, constant_weight, sm_count, stream);
  if (args.m <= 16) return launch<2, Out>(args, constant_weight, sm_count, stream);
  if (args.m <= 32) return launch<4, Out>(args, constant_weight, sm_count, stream);
  if (args.m <= 64) return launch<8, Out>(args, constant_weight, sm_count, stream);
  return launch<16, Out>(args, constant_weight, sm_count, stream);
}

// An n that is no multiple of kCublasAlignment is left to the library: it computes the last columns by another kernel,
// whose bits differ.
bool takes(const GemmArgs& args) {
  const auto aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return args.a_type == DType::kBf16 && args.b_type == DType::kBf16 &&
         (args.c_type == DType::kBf16 || args.c_type == DType::kF32) && args.transpose_a == Transpose::kNo &&
         args.transpose_b == Transpose::kYes && !args.accumulate &&
         (args.bias == nullptr || args.bias_type == DType::kBf16) && args.m >= 1 && args.m <= 128 && args.k >= 8 &&
         args.n % kCublasAlignment == 0 && args.k % 8 == 0 && args.lda % 8 == 0 && args.ldb % 8 == 0 &&
         aligned(args.a) && aligned(args.b);
}

}  // namespace

bool launch_few_rows(const GemmArgs& args, bool constant_weight, cudaStream_t stream) {
  if (!takes(args)) return false;
  int device = 0;
  int major = 0;
  int sm_count = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  if (major != 9) return false;
  return args.c_type == DType::kF32 ? launch_groups<float>(args, constant_weight, sm_count, stream)
                                    : launch_groups<__nv_bfloat16>(args, constant_weight, sm_count, stream);
}

}  // namespace hone
