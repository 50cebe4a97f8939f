// y [m, n] = x [m, k] W[n, k]^T + bias [n] for at most 128 rows of x (decoding), limited by reading W once.
//
// Either operand can be the 64 rows of wgmma. Up to 32 tokens are its columns, so that few of them waste nothing;
// more are its rows, so that a tile of less than 64 rows of W wastes nothing either (under load the device lowers its
// clock to keep its power, and products without a use cost power):
//
//      k ->               tokens ->           tokens        k ->                 rows of W      rows of W
//    +------+            +---------+         +--------+   +-------+             +---------+    +---------+
//  r |  W   |  (wgmma) k |   x^T   |   ->  r |  y^T   | t |   x   |  (wgmma)  k |   W^T   | ->t |    y    |
//    +------+            +---------+         +--------+   +-------+             +---------+    +---------+
//
// Rows of a tile: the blocks, one for each SM, take tiles in turn. A tile has as many rows of W, a multiple of 8, as
// let all SMs read for the same time (4096 rows of W: 128 tiles of 32 on 132 SMs). With W as rows, the tensor cores
// always multiply 64; those beyond the tile are whatever follows in shared memory, and their results are not written.
//
// Memory: a ring of stages, each with one or two parts of 64 columns of a tile of W (128 bytes a row) and of x (128
// bytes a token), swizzled by 128 bytes. All stages together fill shared memory: some 30 KB of each SM must be under
// way to cover the latency, and what the ring holds of W (30 MB on all SMs, 7 us of reading) arrives while the kernels
// before this one still compute x.
//
// Steps of a stage s:
//   1. one thread copies W and another one x, so that W never waits for x. Each waits for empty[s] (the computing warps
//      have arrived), announces its bytes on its own barrier and starts its bulk copies. Up to 32 tokens, 44 KB of
//      W are under way at a time: with the whole ring under way, what the kernels before load queues behind it
//      (a norm of one row took 6 us instead of 3);
//   2. the computing warps wait for both and start wgmma of 16 columns each on the accumulators;
//   3. with the products of the next stage under way those of this one are done (warpgroup_wait<1>): arrive on
//      empty[s].
// The ring runs on from tile to tile, so that the copies of a tile begin while the one before is computed.
//
// Why the result does not depend on m: an accumulator is one chain over k in steps of 16 in ascending order, begun at
// zero; other rows and columns are other accumulators. The library's kernels without split k do the same, which makes
// the bits those of any larger product. No link of a chain is beyond k, so that even zeros keep their sign.
#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/cublas.h"
#include "ops/linear/few_rows_cuda.h"
#include "ops/linear/few_rows_ring.cuh"

namespace hone {
namespace {

__device__ inline float bias_at(const __nv_bfloat16* bias, int row) {
  return bias == nullptr ? 0.0f : __bfloat162float(bias[row]);
}
// Sums without a bias keep the sign of a zero.
__device__ inline float with_bias(float sum, const __nv_bfloat16* bias, float value) {
  return bias == nullptr ? sum : sum + value;
}
__device__ inline void store(float* to, float value) { *to = value; }
__device__ inline void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16(value); }
__device__ inline void store(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = make_float2(first, second);
}
__device__ inline void store(__nv_bfloat16* to, float first, float second) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(first, second);
}

// Begins a block: its ring, with barriers for `warps` computing warps.
template <class Out>
__device__ inline WeightRing begin(std::uint32_t shared, std::uint32_t barriers, const FewRowsArgs<Out>& args,
                                   int stage_bytes, int warps) {
  const WeightRing ring{
      .base = (shared + 1023) / 1024 * 1024, .barriers = barriers, .stage_bytes = stage_bytes, .stages = args.stages};
  allow_dependent_launch();
  make_barriers(ring, warps);
  return ring;
}

// W as rows, up to 8 kGroups tokens as columns.
template <int kGroups, int kParts, class Out>
__global__ void HONE_WGMMA_BOUNDS(kWarpgroupThreads + kCopyingThreads, 1)
    few_rows_columns(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                     FewRowsArgs<Out> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTokenBytes = kGroups * 8 * kRowBytes;
  extern __shared__ __align__(1024) unsigned char few_rows_shared[];
  __shared__ alignas(8) std::uint64_t barriers[3 * kMostStages];
  const int weight_bytes = args.tile_rows * kRowBytes;
  WeightRing ring = begin(shared_address(few_rows_shared), shared_address(barriers), args,
                          kParts * (weight_bytes + kTokenBytes), kWarpgroupThreads / 32);
  const int steps = (args.k + kParts * kPartColumns - 1) / (kParts * kPartColumns);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kWarpgroupThreads) {
    copy_operands<kParts>(ring, weight, x, args, steps, thread - kWarpgroupThreads, kTokenBytes);
    return;
  }
  const int warp = thread / 32;
  const int lane = thread % 32;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    float c[kGroups][4];
    multiply_tile<kParts>(c, ring, steps, 0, weight_bytes, kParts * weight_bytes, kTokenBytes);
    // A thread has two rows of W and two tokens in each group of 8 tokens.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int in_tile = warp * 16 + lane / 4 + half * 8;
      const int row = tile * args.tile_rows + in_tile;
      if (in_tile >= args.tile_rows || row >= args.n) continue;
      const float bias = bias_at(args.bias, row);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = group * 8 + lane % 4 * 2 + i;
          if (token >= args.m) continue;
          store(args.y + token * args.ldy + row, with_bias(c[group][half * 2 + i], args.bias, bias));
        }
      }
    }
  }
#endif
}

// Up to 64 kWarpgroups tokens as rows, tiles of 8 kGroups rows of W as columns.
template <int kWarpgroups, int kGroups, int kParts, class Out>
__global__ void HONE_WGMMA_BOUNDS(kWarpgroups* kWarpgroupThreads + kCopyingThreads, 1)
    few_rows_rows(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                  FewRowsArgs<Out> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kComputing = kWarpgroups * kWarpgroupThreads;
  constexpr int kTokenBytes = kWarpgroups * kWarpgroupRows * kRowBytes;
  constexpr int kTileRows = kGroups * 8;
  constexpr int kWeightBytes = kTileRows * kRowBytes;
  extern __shared__ __align__(1024) unsigned char few_rows_shared[];
  __shared__ alignas(8) std::uint64_t barriers[3 * kMostStages];
  WeightRing ring = begin(shared_address(few_rows_shared), shared_address(barriers), args,
                          kParts * (kWeightBytes + kTokenBytes), kComputing / 32);
  const int steps = (args.k + kParts * kPartColumns - 1) / (kParts * kPartColumns);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kComputing) {
    copy_operands<kParts>(ring, weight, x, args, steps, thread - kComputing, kTokenBytes);
    return;
  }
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int first_token = warp / 4 * kWarpgroupRows * kRowBytes;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    float c[kGroups][4];
    multiply_tile<kParts>(c, ring, steps, kParts * kWeightBytes + first_token, kTokenBytes, 0, kWeightBytes);
    // A thread has two tokens and two rows of W in each group of 8 rows.
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int row = tile * kTileRows + group * 8 + lane % 4 * 2;
      if (row >= args.n) continue;
      const float first = bias_at(args.bias, row);
      const float second = bias_at(args.bias, row + 1);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = warp * 16 + lane / 4 + half * 8;
        if (token >= args.m) continue;
        store(args.y + token * args.ldy + row, with_bias(c[group][half * 2], args.bias, first),
              with_bias(c[group][half * 2 + 1], args.bias, second));
      }
    }
  }
#endif
}

template <class Out>
struct FewRowsKernel {
  void (*function)(CUtensorMap, CUtensorMap, FewRowsArgs<Out>);
  int threads;
  int parts;        // of a stage
  int tokens;       // for which it multiplies
  int slack_bytes;  // that it may read beyond the last stage
  int under_way;    // bytes of W for an SM that are copied at a time
};

// Rows of W in a tile, for which the busiest SM reads least. A tile costs its rows of W and, more cheaply since they
// come from the L2 cache, the rows of x.
int tile_rows_for(std::int64_t n, int tokens, int sm_count) {
  int best = kWarpgroupRows;
  double best_cost = 0;
  for (int rows = kWarpgroupRows; rows >= 16; rows -= 8) {
    const std::int64_t tiles = (n + rows - 1) / rows;
    const std::int64_t rounds = (tiles + sm_count - 1) / sm_count;
    const double cost = static_cast<double>(rounds) * (rows + 4.0 + 0.4 * tokens);
    if (rows < kWarpgroupRows && cost >= best_cost) continue;
    best = rows;
    best_cost = cost;
  }
  return best;
}

template <class Out>
bool launch(const FewRowsKernel<Out>& kernel, const GemmArgs& args, int tile_rows, bool constant_weight, int sm_count,
            cudaStream_t stream) {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel.function), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kernel.threads) return false;  // built for a device without wgmma
  const int tiles = static_cast<int>((args.n + tile_rows - 1) / tile_rows);
  const int stage_bytes = kernel.parts * (tile_rows + kernel.tokens) * kRowBytes;
  const int other_bytes = 1024 + kernel.slack_bytes;  // the ring begins at a multiple of 1,024
  const int stages = std::min(kMostStages, (kSharedBytes - other_bytes) / stage_bytes);
  const int under_way =
      std::min(stages, static_cast<int>(ceil_div(kernel.under_way, kernel.parts * tile_rows * kRowBytes)));
  const FewRowsArgs<Out> rows{.y = static_cast<Out*>(args.c),
                              .bias = static_cast<const __nv_bfloat16*>(args.bias),
                              .ldy = args.ldc,
                              .m = static_cast<int>(args.m),
                              .n = static_cast<int>(args.n),
                              .k = static_cast<int>(args.k),
                              .tile_rows = tile_rows,
                              .tiles = tiles,
                              .stages = stages,
                              .under_way = under_way,
                              .constant_weight = constant_weight};
  const CUtensorMap weight = row_boxes(args.b, args.n, args.ldb, 1, args.k, tile_rows);
  const CUtensorMap x = row_boxes(args.a, args.m, args.lda, 1, args.k, kernel.tokens);
  check_cuda(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(std::min(tiles, sm_count)), static_cast<unsigned>(kernel.threads),
                    static_cast<std::size_t>(other_bytes + stages * stage_bytes)},
                   stream, kernel.function, weight, x, rows);
  check_launch("few_rows");
  return true;
}

template <int kGroups, int kParts, class Out>
bool launch_columns(const GemmArgs& args, bool constant_weight, int sm_count, cudaStream_t stream) {
  const int tile_rows = tile_rows_for(args.n, kGroups * 8, sm_count);
  return launch<Out>({.function = few_rows_columns<kGroups, kParts, Out>,
                      .threads = kWarpgroupThreads + kCopyingThreads,
                      .parts = kParts,
                      .tokens = kGroups * 8,
                      .slack_bytes = (kWarpgroupRows - tile_rows) * kRowBytes,
                      .under_way = kBytesUnderWay},
                     args, tile_rows, constant_weight, sm_count, stream);
}

template <int kWarpgroups, int kParts, class Out, int kGroups = kWarpgroupRows / 8>
bool launch_rows(const GemmArgs& args, bool constant_weight, int sm_count, cudaStream_t stream) {
  constexpr int kTokens = kWarpgroups * kWarpgroupRows;
  if constexpr (kGroups > 2) {
    if (tile_rows_for(args.n, kTokens, sm_count) < kGroups * 8) {
      return launch_rows<kWarpgroups, kParts, Out, kGroups - 1>(args, constant_weight, sm_count, stream);
    }
  }
  return launch<Out>({.function = few_rows_rows<kWarpgroups, kGroups, kParts, Out>,
                      .threads = kWarpgroups * kWarpgroupThreads + kCopyingThreads,
                      .parts = kParts,
                      .tokens = kTokens,
                      .slack_bytes = 0,
                      .under_way = kSharedBytes},
                     args, kGroups * 8, constant_weight, sm_count, stream);
}

template <int kParts, class Out>
bool launch_parts(const GemmArgs& args, bool constant_weight, int sm_count, cudaStream_t stream) {
  if (args.m <= 8) return launch_columns<1, kParts, Out>(args, constant_weight, sm_count, stream);
  if (args.m <= 16) return launch_columns<2, kParts, Out>(args, constant_weight, sm_count, stream);
  if (args.m <= 32) return launch_columns<4, kParts, Out>(args, constant_weight, sm_count, stream);
  if (args.m <= 64) return launch_rows<1, kParts, Out>(args, constant_weight, sm_count, stream);
  return launch_rows<2, 1, Out>(args, constant_weight, sm_count, stream);
}

// Two parts a stage halve the waits, each of which costs as much as some links. A stage has both only if none of its
// columns is beyond k.
template <class Out>
bool launch_dtype(const GemmArgs& args, bool constant_weight, int sm_count, cudaStream_t stream) {
  return args.k % (2 * kPartColumns) == 0 ? launch_parts<2, Out>(args, constant_weight, sm_count, stream)
                                          : launch_parts<1, Out>(args, constant_weight, sm_count, stream);
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
         args.ldc % 8 == 0 && aligned(args.a) && aligned(args.b) && aligned(args.c);
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
  return args.c_type == DType::kF32 ? launch_dtype<float>(args, constant_weight, sm_count, stream)
                                    : launch_dtype<__nv_bfloat16>(args, constant_weight, sm_count, stream);
}

}  // namespace hone
