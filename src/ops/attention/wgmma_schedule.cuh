// The work items of wgmma_forward.cuh and wgmma_backward.cuh, and the kernel that sorts them, longest first.
#pragma once

#include <cstdint>

#include "ops/attention/widen_pages.cuh"

namespace hone {

inline constexpr int kForwardKeys = 128;  // keys in a tile; results depend on it

inline constexpr int kScheduleBins = 1024;  // also the threads of the block that sorts

// Consecutive tokens of one sequence: the rows of an item.
struct AttentionItem {
  std::int32_t row;       // row of the first token
  std::int32_t tokens;    // number of tokens
  std::int32_t position;  // of the first token in its sequence
  std::int32_t work;      // forward: the number of keys that the last token sees; 0 for rows outside all sequences
  std::int32_t sequence;
  std::int32_t key_row;  // the row of the sequence's first key; keys in pages: of the first widened one, or -1
  std::int32_t padding[2];

  // The tile that sequence_tile(sequences, 1, tokens, index) gives, if `work` is the number of rows of the sequence
  // from the first token on (BackwardOrder).
  [[nodiscard]] __device__ SequenceTile rest() const {
    return {sequence, key_row, position + work, position, position + tokens, work == 0};
  }
};

// Items in device memory, the ones with the most work first.
struct AttentionSchedule {
  AttentionItem* items;
  std::int32_t* counts;  // [2]: items taken after each block's first one; items in all

  static constexpr std::int64_t kCountBytes = 256;
  [[nodiscard]] static std::size_t bytes(std::int64_t capacity) {
    return static_cast<std::size_t>(kCountBytes + capacity * static_cast<std::int64_t>(sizeof(AttentionItem)));
  }
  [[nodiscard]] __host__ __device__ static AttentionSchedule in(std::byte* workspace) {
    return {reinterpret_cast<AttentionItem*>(workspace + kCountBytes), reinterpret_cast<std::int32_t*>(workspace)};
  }
};

[[nodiscard]] __device__ inline AttentionItem attention_item(const SequenceTile& tile, std::int64_t start) {
  AttentionItem item{};
  item.row = static_cast<std::int32_t>(tile.token) + tile.first;
  item.tokens = tile.end - tile.first;
  item.position = static_cast<std::int32_t>(start) + tile.first;
  item.work = tile.outside ? 0 : item.position + item.tokens;
  item.sequence = tile.sequence;
  item.key_row = static_cast<std::int32_t>(tile.token);
  return item;
}

// Work of the forward pass: the keys up to a tile's last row.
template <class Keys>
struct ForwardOrder {
  Keys keys;
  std::int32_t short_tokens = 0;  // ForwardSplits
  [[nodiscard]] __device__ bool takes(const SequenceTile& sequence) const {
    return sequence.rows > (sequence.outside ? 0 : short_tokens);
  }
  [[nodiscard]] __device__ AttentionItem operator()(const SequenceTile& tile) const {
    AttentionItem item = attention_item(tile, tile.outside ? 0 : keys.start(tile));
    if constexpr (!Keys::kDecodes) {
      if (!tile.outside) item.key_row = static_cast<std::int32_t>(keys.first_row(tile));
    } else {
      item.key_row = -1;
    }
    if constexpr (Keys::kFp8) {
      if (!tile.outside && keys.widened.capacity > 0) item.key_row = keys.widened.first_rows[tile.sequence];
    }
    return item;
  }
  // Decides before the items are listed which sequences are widened.
  __device__ void prepare(const Sequences& sequences, int item_tokens, std::int32_t* sums) const {
    if constexpr (Keys::kFp8) {
      if (keys.widened.capacity == 0) return;
      keys.widened.template assign<kScheduleBins>(static_cast<std::int32_t>(sequences.count.get()), sums,
                                                  WidenedKeys{sequences.cu_seqlens, keys.starts, item_tokens});
    }
  }
};
// Work of the backward pass: the query rows from a tile's first key on.
struct BackwardOrder {
  [[nodiscard]] __device__ bool takes(const SequenceTile& sequence) const { return sequence.rows > 0; }
  [[nodiscard]] __device__ AttentionItem operator()(const SequenceTile& tile) const {
    AttentionItem item = attention_item(tile, 0);
    if (!tile.outside) item.work = tile.rows - tile.first;
    return item;
  }
  __device__ void prepare(const Sequences&, int, std::int32_t*) const {}
};

// Counting sort of the items by work, in units of kForwardKeys keys, most work first. Launched as one block; a warp
// lists the items of a sequence. Within a bin the order depends on timing; the items of a sequence shorter than
// kScheduleBins units, if item_tokens is at least a unit, are in different bins and so come in order.
template <class Order>
__global__ void __launch_bounds__(kScheduleBins)
    attention_schedule(Sequences sequences, Order order, int item_tokens, AttentionSchedule schedule) {
  __shared__ int places[kScheduleBins];
  __shared__ int sums[32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  begin_dependent_kernel();
  order.prepare(sequences, item_tokens, sums);
  const auto count = static_cast<std::int32_t>(sequences.count.get());
  // Calls body(item, bin) for each item; bin 0 has the most work.
  const auto for_items = [&](const auto& body) {
    for (int s = thread / 32; s <= count; s += kScheduleBins / 32) {
      SequenceTile tile{};
      tile.sequence = s;
      tile.token = sequences.cu_seqlens[s];
      tile.outside = s == count;
      tile.rows = (tile.outside ? static_cast<std::int32_t>(sequences.capacity) : sequences.cu_seqlens[s + 1]) -
                  static_cast<std::int32_t>(tile.token);
      if (!order.takes(tile)) continue;
      for (tile.first = lane * item_tokens; tile.first < tile.rows; tile.first += 32 * item_tokens) {
        tile.end = min(tile.first + item_tokens, tile.rows);
        const AttentionItem item = order(tile);
        body(item, kScheduleBins - 1 - min((item.work + kForwardKeys - 1) / kForwardKeys, kScheduleBins - 1));
      }
    }
  };
  places[thread] = 0;
  __syncthreads();
  for_items([&](const AttentionItem&, int bin) { atomicAdd(&places[bin], 1); });
  __syncthreads();
  // Exclusive prefix sum over the bins: places[bin] becomes the index of the bin's first item.
  const int own = places[thread];
  int before = warp_sum_up_to(own);
  if (lane == 31) sums[thread / 32] = before;
  __syncthreads();
  if (thread < 32) sums[thread] = warp_sum_up_to(sums[thread]);
  __syncthreads();
  if (thread >= 32) before += sums[thread / 32 - 1];
  places[thread] = before - own;
  if (thread == 0) {
    schedule.counts[0] = 0;
    schedule.counts[1] = sums[31];
  }
  __syncthreads();
  for_items([&](const AttentionItem& item, int bin) { schedule.items[atomicAdd(&places[bin], 1)] = item; });
}

}  // namespace hone
