// Launches of the backward pass of wgmma_backward.cuh, and the kernels before and after it.
#pragma once

#include "ops/attention/wgmma_backward.cuh"
#include "ops/attention/wgmma_backward_plan.cuh"
#include "ops/attention/wgmma_schedule.cuh"

namespace hone {

// Computes overlap, scales lse by log2(e), lays both out by tiles and clears the turns. A block has a query tile and
// head; kValues / 8 lanes share a row.
template <int kWidth, int kValues>
__global__ void __launch_bounds__(256)
    wgmma_backward_prepare(AttentionGradients<__nv_bfloat16> args, WgmmaBackwardWork work) {
  const auto head = static_cast<int>(blockIdx.x % static_cast<unsigned>(args.heads));
  const std::int64_t index = blockIdx.x / static_cast<unsigned>(args.heads);
  const SequenceTile tile = sequence_tile(args.sequences, 1, kWgmmaQueries, index);
  if (tile.first >= tile.end || tile.outside) return;
  if (threadIdx.x == 0) work.turns[blockIdx.x] = 0;
  float* statistics = work.statistics + static_cast<std::int64_t>(blockIdx.x) * (2 * kWgmmaQueries);
  constexpr int kLanes = kValues / 8;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int pass = 0; pass < kWgmmaQueries * kLanes / 256; ++pass) {
    const int row = (pass * 256 + static_cast<int>(threadIdx.x)) / kLanes;
    const bool used = tile.first + row < tile.end;
    const std::int64_t at = (tile.token + tile.first + (used ? row : 0)) * args.heads + head;
    const auto a = *reinterpret_cast<const Pack<__nv_bfloat16, 8>*>(args.o + at * kWidth + lane * 8);
    const auto b = *reinterpret_cast<const Pack<__nv_bfloat16, 8>*>(args.grad_o + at * kWidth + lane * 8);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = __fmaf_rn(widened(a[i]), widened(b[i]), sum);
#pragma unroll
    for (int other = kLanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (lane != 0) continue;
    statistics[row] = used ? args.lse[at] * kLog2e : std::numeric_limits<float>::infinity();
    statistics[kWgmmaQueries + row] = used ? sum : 0.0f;
  }
}

// Scales dq, rounds it to bf16 and writes it to args.grad_q. A block has a query tile and head.
template <int kWidth, int kValues>
__global__ void __launch_bounds__(256)
    wgmma_backward_finish(AttentionGradients<__nv_bfloat16> args, WgmmaBackwardWork work) {
  using Plan = WgmmaBackward<kWidth, kValues>;
  constexpr int kPitch = kWidth + 8;
  __shared__ __align__(16) __nv_bfloat16 rows[kWgmmaQueries * kPitch];
  const auto head = static_cast<int>(blockIdx.x % static_cast<unsigned>(args.heads));
  const SequenceTile tile =
      sequence_tile(args.sequences, 1, kWgmmaQueries, blockIdx.x / static_cast<unsigned>(args.heads));
  if (tile.first >= tile.end) return;
  const float* from = work.grad_q + static_cast<std::int64_t>(blockIdx.x) * (kWgmmaQueries * kWidth);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int n = 0; n < Plan::kColumns / 8; ++n) {
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!tile.outside) four = *reinterpret_cast<const float4*>(from + Plan::grad_q_place(group, thread, n));
    __nv_bfloat16* to = rows + row * kPitch + Plan::grad_q_column(group, n) + thread % 4 * 2;
    *reinterpret_cast<std::uint32_t*>(to) = packed_bf16(four.x * args.scale, four.y * args.scale);
    *reinterpret_cast<std::uint32_t*>(to + 8 * kPitch) = packed_bf16(four.z * args.scale, four.w * args.scale);
  }
  __syncthreads();
  constexpr int kChunks = kWidth / 8;
#pragma unroll
  for (int place = static_cast<int>(threadIdx.x); place < kWgmmaQueries * kChunks; place += 256) {
    const int of = place / kChunks;
    if (tile.first + of >= tile.end) continue;
    *reinterpret_cast<uint4*>(args.grad_q + (tile.token + tile.first + of) * args.stride + head * kWidth +
                              place % kChunks * 8) =
        *reinterpret_cast<const uint4*>(rows + of * kPitch + place % kChunks * 8);
  }
}

template <int kWidth, int kValues, class Queries>
[[nodiscard]] bool launch_wgmma_backward(const AttentionGradients<__nv_bfloat16>& args, const BackwardKeys& keys,
                                         const Queries& queries, std::byte* workspace, cudaStream_t stream) {
  using Plan = WgmmaBackward<kWidth, kValues>;
  const auto kernel = wgmma_attention_backward<kWidth, kValues, Queries>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < Plan::kThreads) return false;
  WgmmaBackwardWork work{};
  const std::int64_t rows = args.sequences.capacity;
  const std::int64_t key_rows = keys.sequences.capacity;
  WgmmaBackwardWork::lay_out({.rows = rows,
                              .sequences = args.sequences.count.capacity,
                              .key_rows = key_rows,
                              .key_sequences = keys.sequences.count.capacity,
                              .heads = args.heads,
                              .head_dim = kWidth},
                             workspace, work);
  const auto tiles = static_cast<unsigned>(tiles_capacity(args.sequences, 1, kWgmmaQueries) * args.heads);
  wgmma_backward_prepare<kWidth, kValues><<<tiles, 256, 0, stream>>>(args, work);
  check_launch("attention_backward: preparation");
  // The sort keeps the key blocks of a sequence in order only if it has fewer units than bins; if one may have more,
  // blocks take the tiles in the order of memory instead.
  if (key_rows < static_cast<std::int64_t>(kScheduleBins - 1) * kForwardKeys) {
    attention_schedule<<<1, kScheduleBins, 0, stream>>>(keys.sequences, BackwardOrder{}, kWgmmaKeys,
                                                        AttentionSchedule::in(work.schedule));
    check_launch("attention_backward: schedule");
  } else {
    work.schedule = nullptr;
  }
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes),
             "cudaFuncSetAttribute");
  const WgmmaBackwardMaps maps{
      .q = row_boxes(args.q, rows, args.stride, args.heads, kWidth, kWgmmaQueries),
      .keys = row_boxes(args.k, key_rows, keys.stride, 2 * std::int64_t{args.kv_heads}, kWidth, kWgmmaQueries),
      .grad_o = row_boxes(args.grad_o, rows, args.heads * kWidth, args.heads, kWidth, kWgmmaQueries),
      .statistics = float_rows(work.statistics, tiles, std::int64_t{2} * kWgmmaQueries)};
  const auto blocks = static_cast<unsigned>(tiles_capacity(keys.sequences, 1, kWgmmaKeys) * args.kv_heads);
  kernel<<<blocks, Plan::kThreads, Plan::kSharedBytes, stream>>>(args, keys, queries, work, maps);
  check_launch("attention_backward");
  wgmma_backward_finish<kWidth, kValues><<<tiles, 256, 0, stream>>>(args, work);
  check_launch("attention_backward: rounding of dq");
  return true;
}

// Runs the whole backward pass, overlap included, or returns false and does nothing if the kernel does not support the
// head or the device. args.v follows args.k in the rows of the keys.
template <class Queries>
[[nodiscard]] bool launch_wgmma_attention_backward(const AttentionGradients<__nv_bfloat16>& args,
                                                   const BackwardKeys& keys, const Queries& queries,
                                                   std::byte* workspace, cudaStream_t stream) {
  if (keys.sequences.capacity == 0) return true;
  if (!wgmma_backward_takes(args.head_dim, args.value_dim)) return false;
  if (args.head_dim == 64) return launch_wgmma_backward<64, 64>(args, keys, queries, workspace, stream);
  if (args.head_dim == 128) return launch_wgmma_backward<128, 128>(args, keys, queries, workspace, stream);
  return launch_wgmma_backward<192, 128>(args, keys, queries, workspace, stream);
}

}  // namespace hone
