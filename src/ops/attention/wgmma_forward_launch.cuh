// Launches the kernel of wgmma_forward.cuh: its grid, its shared memory and the maps of its copies.
#pragma once

#include <algorithm>

#include "ops/attention/wgmma_forward.cuh"

namespace hone {

[[nodiscard]] inline bool wgmma_forward_takes(std::int64_t group, std::int64_t head_dim, std::int64_t value_dim) {
  const bool even = head_dim == value_dim && (head_dim == 64 || head_dim == 128);
  return (even || (head_dim == 192 && value_dim == 128)) && group <= 64;
}

inline constexpr std::int64_t kMostKeepingBlocks = 144;  // no fewer than the SMs of a Hopper GPU

// Bytes of the schedule in the workspace.
[[nodiscard]] inline std::size_t forward_schedule_bytes(std::int64_t rows, std::int64_t sequences, std::int64_t group) {
  const std::int64_t tokens = 128 / group;
  return AttentionSchedule::bytes(rows / tokens + sequences + 1);
}
// Bytes of the workspace if kGroups is 2: the schedule, then what blocks keep of splits outside of shared memory.
[[nodiscard]] inline std::size_t wgmma_forward_bytes(std::int64_t rows, std::int64_t sequences, std::int64_t group,
                                                     std::int64_t head_dim, std::int64_t most_keys) {
  const bool keeps = head_dim == 192 && most_keys > kSplitKeys;
  return forward_schedule_bytes(rows, sequences, group) +
         (keeps ? kMostKeepingBlocks * WgmmaForward<192, 128, 2, false>::kKeptBytes : 0);
}

template <class Keys>
void launch_widening(const Sequences& sequences, const Keys& keys, int item_tokens, int head_dim, cudaStream_t stream) {
  const std::int64_t parts = std::int64_t{keys.widened.capacity} * kWideningParts * 2;
  const std::int64_t blocks = std::min<std::int64_t>(parts, std::int64_t{8} * cuda_device().sm_count());
  launch_dependent({static_cast<unsigned>(blocks), kWideningThreads}, stream, widen_pages<Keys>, keys, head_dim,
                   WidenedKeys{sequences.cu_seqlens, keys.starts, item_tokens});
  check_launch("attention: widened pages");
}

// Launches the kernel, or returns false and does nothing if the device cannot run it. `most_keys`: the most keys that a
// row can see. `workspace` has wgmma_forward_bytes() if kGroups is 2; otherwise splits.data points into it.
template <int kWidth, int kValues, int kGroups, bool kDeep, class Keys>
[[nodiscard]] bool launch_wgmma_forward(const TileQueries<__nv_bfloat16>& queries, const Keys& keys,
                                        ForwardSplits splits, std::int64_t most_keys, std::byte* workspace,
                                        cudaStream_t stream) {
  using Plan = WgmmaForward<kWidth, kValues, kGroups, kDeep>;
  const auto kernel = wgmma_attention_forward<kWidth, kValues, kGroups, kDeep, Keys>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < Plan::kThreads) return false;
  if (queries.sequences.capacity == 0) return true;
  const std::int64_t rows = queries.sequences.capacity;
  const int group = queries.group();
  const int item_tokens = Plan::kRows / group;
  ForwardMaps maps{};
  maps.q = row_boxes(queries.q, rows, queries.q_stride, queries.heads, kWidth, item_tokens, group);
  if constexpr (Keys::kFp8) {
    if (keys.widened.capacity > 0) {
      maps.k = row_boxes(keys.widened.k, keys.widened.rows(), keys.stride, queries.kv_heads, kWidth, kForwardKeys);
      maps.v = row_boxes(keys.widened.v, keys.widened.rows(), keys.stride, queries.kv_heads, kWidth, kForwardKeys);
    }
  } else if constexpr (Keys::kDecodes) {
    if (keys.boxed()) {
      maps.k = row_boxes(keys.k, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size);
      maps.v = row_boxes(keys.v, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size);
    }
  } else {
    maps.k = row_boxes(keys.k, keys.rows, keys.stride, queries.kv_heads, kWidth, kForwardKeys);
    maps.v = row_boxes(keys.v, keys.rows, keys.stride, queries.kv_heads, kWidth, kForwardKeys);
  }
  const bool keeps = kGroups > 1 && most_keys > kSplitKeys;
  const int bytes = keeps ? Plan::kSplitSharedBytes : Plan::kSharedBytes;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "cudaFuncSetAttribute");
  const std::int64_t items = tiles_capacity(queries.sequences, 1, item_tokens);
  std::int64_t blocks = items * queries.kv_heads * splits.blocks;
  AttentionSchedule schedule{};
  if constexpr (kGroups > 1) {
    blocks = std::min<std::int64_t>(blocks, std::min<std::int64_t>(cuda_device().sm_count(), kMostKeepingBlocks));
    splits.data =
        reinterpret_cast<float*>(workspace + forward_schedule_bytes(rows, queries.sequences.count.capacity, group));
    schedule = AttentionSchedule::in(workspace);
    launch_dependent({1, kScheduleBins}, stream, attention_schedule<ForwardOrder<Keys>>, queries.sequences,
                     ForwardOrder<Keys>{keys, splits.short_tokens}, item_tokens, schedule);
    check_launch("attention: schedule");
    if constexpr (Keys::kFp8) {
      if (keys.widened.capacity > 0) launch_widening(queries.sequences, keys, item_tokens, queries.head_dim, stream);
    }
  }
  launch_dependent({static_cast<unsigned>(blocks), Plan::kThreads, static_cast<std::size_t>(bytes)}, stream, kernel,
                   queries, keys, schedule, splits, item_tokens, maps);
  check_launch("attention");
  return true;
}

}  // namespace hone
