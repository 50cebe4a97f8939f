// The kernels of few_rows_cuda.cu: W as rows and the tokens as columns of wgmma, or the other way round, and how sums
// are written.
#pragma once

#include "ops/linear/few_rows_ring.cuh"
#include "ops/linear/quad.cuh"
#include "ops/swiglu/element.cuh"

namespace hone {

// Adds the bias to the sums of a thread with tokens as rows: two columns of y in each group of 8 rows of W. Without a
// bias they keep the sign of a zero.
template <int kGroups>
__device__ inline void add_bias_of_rows(float (&c)[kGroups][4], const __nv_bfloat16* bias, int n, int first_row,
                                        int in_quad) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + group * 8 + in_quad * 2 + i;
      const float value = row < n ? __bfloat162float(bias[row]) : 0.0f;
      c[group][i] += value;
      c[group][2 + i] += value;
    }
  }
}
// The same with W as rows: the thread has sums of two rows, `row` and 8 further.
template <int kGroups>
__device__ inline void add_bias_of_columns(float (&c)[kGroups][4], const __nv_bfloat16* bias, int n, int row) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float value = row + half * 8 < n ? __bfloat162float(bias[row + half * 8]) : 0.0f;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 2; ++i) c[group][half * 2 + i] += value;
    }
  }
}

// Computes swiglu of gates and ups, each rounded first as if it were stored. The result has its own registers: with
// those that the tensor cores accumulate in, ptxas serialises the products.
template <int kGroups>
__device__ inline void apply_gates(const float (&gates)[kGroups][4], const float (&ups)[kGroups][4],
                                   float (&y)[kGroups][4]) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float2 pair = widened_pair(swiglu_pair<true>(packed_bf16(gates[group][i], gates[group][i + 1]),
                                                         packed_bf16(ups[group][i], ups[group][i + 1])));
      y[group][i] = pair.x;
      y[group][i + 1] = pair.y;
    }
  }
}

__device__ inline void store(float* to, float value) { *to = value; }
__device__ inline void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16(value); }
__device__ inline void store(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = make_float2(first, second);
}
__device__ inline void store(__nv_bfloat16* to, float first, float second) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(first, second);
}

// Writes half of the sums of a thread: those of one token, of which it has two rows of W in each group of 8 rows. The
// other threads of its quad have the others. Four groups are written together in bf16, so that a thread has 16 bytes.
template <int kGroups, class Out>
__device__ inline void write_row(const float (&c)[kGroups][4], int half, const FewRowsArgs<Out>& args, int token,
                                 int first_row, int in_quad) {
  auto* const y = args.y + token * args.ldy + first_row;
  const auto value = [&](int group, int i) { return c[group][half * 2 + i]; };
  constexpr int kTogether = sizeof(*y) == 2 ? kGroups / 4 * 4 : 0;
#pragma unroll
  for (int group = 0; group < kTogether; group += 4) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = packed_bf16(value(group + i, 0), value(group + i, 1));
    transpose_quad(words, in_quad);
    const int at = (group + in_quad) * 8;
    if (token < args.m && first_row + at < args.n) {
      *reinterpret_cast<uint4*>(y + at) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
#pragma unroll
  for (int group = kTogether; group < kGroups; ++group) {
    const int at = group * 8 + in_quad * 2;
    if (token < args.m && first_row + at < args.n) store(y + at, value(group, 0), value(group, 1));
  }
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

// Writes the sums of a thread with W as rows: two rows of a tile, in_tile and in_tile + 8, and two tokens in each group
// of 8 tokens.
template <int kGroups, class Out>
__device__ inline void write_column(const float (&c)[kGroups][4], const FewRowsArgs<Out>& args, int first_token,
                                    int first_row, int in_tile) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + in_tile + half * 8;
    if (in_tile + half * 8 >= args.tile_rows || row >= args.n) continue;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = first_token + group * 8 + i;
        if (token >= args.m) continue;
        store(args.y + token * args.ldy + row, c[group][half * 2 + i]);
      }
    }
  }
}

// W as rows, up to 8 kGroups tokens as columns.
template <int kGroups, int kParts, class Out>
__global__ void HONE_WGMMA_BOUNDS(kWarpgroupThreads + kCopyingThreads, 1)
    few_rows_columns(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                     FewRowsArgs<Out> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTokens = kGroups * 8;
  constexpr int kTokenBytes = kTokens * kRowBytes;
  extern __shared__ __align__(1024) unsigned char few_rows_shared[];
  __shared__ alignas(8) std::uint64_t barriers[3 * kMostStages];
  constexpr int kMatrices = FewRowsOut<Out>::kMatrices;
  const int tile_bytes = args.tile_rows * kRowBytes;
  const int weight_bytes = kMatrices * tile_bytes;
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
    float c[kMatrices][kGroups][4];
    multiply_tile<kParts>(c, ring, steps, 0, weight_bytes, tile_bytes, kParts * weight_bytes, kTokenBytes);
    const int first_row = tile / args.token_tiles * args.tile_rows;
    const int in_tile = warp * 16 + lane / 4;
    if (args.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kMatrices; ++i)
        add_bias_of_columns(c[i], args.bias + i * args.n, args.n, first_row + in_tile);
    }
    const int first_token = tile % args.token_tiles * kTokens + lane % 4 * 2;
    if constexpr (kMatrices == 2) {
      float y[kGroups][4];
      apply_gates(c[0], c[1], y);
      write_column<kGroups>(y, args, first_token, first_row, in_tile);
    } else {
      write_column<kGroups>(c[0], args, first_token, first_row, in_tile);
    }
  }
#endif
}

// 64 kWarpgroups tokens as rows, tiles of 8 kGroups rows of each matrix as columns.
template <int kWarpgroups, int kGroups, int kParts, class Out>
__global__ void HONE_WGMMA_BOUNDS(kWarpgroups* kWarpgroupThreads + kCopyingThreads, 1)
    few_rows_rows(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                  FewRowsArgs<Out> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kComputing = kWarpgroups * kWarpgroupThreads;
  constexpr int kTokenBytes = kWarpgroups * kWarpgroupRows * kRowBytes;
  constexpr int kTileRows = kGroups * 8;
  constexpr int kMatrices = FewRowsOut<Out>::kMatrices;
  constexpr int kWeightBytes = kMatrices * kTileRows * kRowBytes;
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
    float c[1][kMatrices * kGroups][4];
    multiply_tile<kParts>(c, ring, steps, kParts * kWeightBytes + first_token, kTokenBytes, 0, 0, kWeightBytes);
    const int first_row = tile / args.token_tiles * kTileRows;
    auto& sums = reinterpret_cast<float(&)[kMatrices][kGroups][4]>(c);
    if (args.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kMatrices; ++i)
        add_bias_of_rows(sums[i], args.bias + i * args.n, args.n, first_row, lane % 4);
    }
    const int token = tile % args.token_tiles * kWarpgroups * kWarpgroupRows + warp * 16 + lane / 4;
    const auto write = [&](const float(&y)[kGroups][4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) write_row<kGroups>(y, half, args, token + half * 8, first_row, lane % 4);
    };
    if constexpr (kMatrices == 2) {
      float y[kGroups][4];
      apply_gates(sums[0], sums[1], y);
      write(y);
    } else {
      write(sums[0]);
    }
  }
#endif
}

}  // namespace hone
