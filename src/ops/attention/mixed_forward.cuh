// Layout of a launch of attention forward in bf16, and launches for batches of sequences that decode and prompts.
//
// Each has its kernel: sequences of a few tokens that of wgmma_decode.cuh, which reads keys at the memory's rate, and
// longer ones that of wgmma_forward.cuh, which multiplies 64 query rows at a time. Only the device knows which are
// which: both kernels are launched, and each passes over the sequences of the other (ForwardSplits::short_tokens). The
// bits are the same in both.
#pragma once

#include "ops/attention/wgmma_decode.cuh"
#include "ops/attention/wgmma_forward_launch.cuh"

namespace hone {

inline constexpr std::int64_t kFewQueryRows = 16;  // of a sequence and key head, on average at most

// Returns true if a batch may have both. Where there are no more rows than sequences, a prompt is short or alone.
[[nodiscard]] inline bool mixed_attention_takes(std::int64_t rows, std::int64_t sequences, std::int64_t group,
                                                std::int64_t head_dim, std::int64_t value_dim) {
  return rows > sequences && sequences > 1 && head_dim == value_dim && (head_dim == 64 || head_dim == 128) &&
         wgmma_decode_takes(group);
}

// Layout of a launch and its workspace. It follows from what the host knows: capacities of rows and sequences, and the
// most keys that a row can see (`keys`).
struct ForwardPlan {
  std::int64_t most_keys;
  bool few = false;  // sequences have few query rows each (16 on average at most), as in decoding
  ForwardSplits splits;
  std::int64_t widened_tiles = 0;  // of FP8 pages, of which the workspace has room for widened ones (WidenedPages)
  std::size_t widened_offset = 0;  // in the workspace
  std::int32_t short_tokens = 0;   // above 0: sequences of so many tokens may come with longer ones
  bool short_by_sequence = false;  // ForwardSplits::by_sequence
  std::size_t short_offset = 0;    // of their splits in the workspace
  std::size_t workspace_bytes = 0;

  ForwardPlan(std::int64_t rows, std::int64_t sequences, std::int64_t heads, std::int64_t kv_heads,
              std::int64_t head_dim, std::int64_t value_dim, std::int64_t keys, bool decodes, bool fp8_pages = false)
      : most_keys(keys) {
    few = decodes && rows * (heads / kv_heads) <= kFewQueryRows * sequences;
    const std::int64_t count = ceil_div(most_keys, kSplitKeys);
    if (few && count > 1) {
      splits.per_row = static_cast<std::int32_t>(count);
    }
    if (count > 1) {
      workspace_bytes = static_cast<std::size_t>(rows * heads * splits.per_row * (head_dim + 2)) * sizeof(float);
    }
    const std::int64_t group = heads / kv_heads;
    if (decodes && mixed_attention_takes(rows, sequences, group, head_dim, value_dim)) {
      short_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(kFewQueryRows / group, 1));
    }
    if ((few && short_tokens == 0) || !wgmma_forward_takes(group, head_dim, value_dim)) return;
    std::size_t bytes = wgmma_forward_bytes(rows, sequences, group, head_dim, most_keys);
    if (fp8_pages) {
      widened_tiles = WidenedPages::capacity_of(rows, sequences, most_keys);
      widened_offset = aligned(bytes);
      bytes = widened_offset + WidenedPages::bytes(widened_tiles, sequences, kv_heads * head_dim);
    }
    if (short_tokens > 0 && count > 1) {
      short_offset = aligned(bytes);
      short_by_sequence = sequences * short_tokens < rows;
      const std::int64_t short_rows = short_by_sequence ? sequences * short_tokens : rows;
      bytes = short_offset + static_cast<std::size_t>(short_rows * heads * count * (head_dim + 2)) * sizeof(float);
    }
    workspace_bytes = std::max(workspace_bytes, bytes);
  }
  [[nodiscard]] static std::size_t aligned(std::size_t bytes) { return (bytes + 1023) / 1024 * 1024; }

  // The splits of short sequences; with one for each row, they have nothing in the workspace.
  [[nodiscard]] ForwardSplits short_splits(std::byte* workspace, const TileQueries<__nv_bfloat16>& queries) const {
    ForwardSplits short_ones{.data = reinterpret_cast<float*>(workspace + short_offset),
                             .per_row = static_cast<std::int32_t>(ceil_div(most_keys, kSplitKeys)),
                             .short_tokens = short_tokens,
                             .by_sequence = short_by_sequence};
    short_ones.share(queries.sequences.count.capacity * queries.kv_heads, cuda_device().sm_count());
    return short_ones;
  }
  template <class Keys>
  void set_widened(Keys& keys, std::byte* workspace) const {
    if constexpr (Keys::kFp8) {
      if (widened_tiles > 0) keys.widened = WidenedPages::in(workspace + widened_offset, widened_tiles, keys.stride);
    }
  }
};

// Launches both kernels, or returns false and does nothing if the device cannot run them. keys.boxed() must be true.
// `of_short`: the splits of short sequences, for attention_merge if there are several for each row.
template <class Keys>
[[nodiscard]] bool launch_mixed_attention(const TileQueries<__nv_bfloat16>& queries, Keys keys, const ForwardPlan& plan,
                                          const ForwardSplits& of_short, std::byte* workspace, cudaStream_t stream) {
  plan.set_widened(keys, workspace);
  const auto launch = [&]<int kWidth>() {
    const ForwardSplits of_long{.short_tokens = plan.short_tokens};
    const bool deep = queries.sequences.count.capacity * queries.kv_heads * of_short.blocks <= cuda_device().sm_count();
    return launch_wgmma_forward<kWidth, kWidth, 2, false>(queries, keys, of_long, plan.most_keys, workspace, stream) &&
           (deep ? launch_wgmma_decode<kWidth, DecodeForm::kDeep>(queries, keys, of_short, stream)
                 : launch_wgmma_decode<kWidth, DecodeForm::kMany>(queries, keys, of_short, stream));
  };
  return queries.head_dim == 64 ? launch.template operator()<64>() : launch.template operator()<128>();
}

}  // namespace hone
