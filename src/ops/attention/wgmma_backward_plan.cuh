// The plan of the backward pass on Hopper (wgmma_backward.cuh): scratch memory, shared memory, barriers, and the order
// in which a block of keys goes over its queries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "ops/attention/tiles.cuh"
#include "ops/attention/wgmma_schedule.cuh"
#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kWgmmaQueries = 64;  // of a tile
inline constexpr int kWgmmaKeys = 128;    // of a block

// Scratch memory; query tiles are those of sequence_tile(sequences, 1, kWgmmaQueries, index).
struct WgmmaBackwardWork {
  float* grad_q;        // [tiles, heads] of kWgmmaQueries x head_dim in the order of WgmmaBackward::grad_q_place
  float* statistics;    // [tiles, heads, 2, kWgmmaQueries]: lse log2(e), overlap; of rows past the end infinity, 0
  std::int32_t* turns;  // [tiles, heads]: how many blocks have added to grad_q
  std::byte* schedule;  // AttentionSchedule of tiles of kWgmmaKeys

  // Null pointers and the size in bytes, or pointers into `from`.
  static std::size_t lay_out(std::int64_t rows, std::int64_t sequences, std::int64_t heads, std::int64_t head_dim,
                             std::byte* from, WgmmaBackwardWork& work) {
    const std::int64_t tiles = (rows / kWgmmaQueries + sequences + 1) * heads;
    std::size_t bytes = 0;
    const auto take = [&]<class T>(T*& pointer, std::int64_t count) {
      pointer = from != nullptr ? reinterpret_cast<T*>(from + bytes) : nullptr;
      bytes += static_cast<std::size_t>(ceil_div(count * static_cast<std::int64_t>(sizeof(T)), 256) * 256);
    };
    take(work.grad_q, tiles * kWgmmaQueries * head_dim);
    take(work.statistics, tiles * 2 * kWgmmaQueries);
    take(work.turns, tiles);
    take(work.schedule, static_cast<std::int64_t>(AttentionSchedule::bytes(rows / kWgmmaKeys + sequences + 1)));
    return bytes;
  }
};

[[nodiscard]] inline bool wgmma_backward_takes(std::int64_t head_dim) { return head_dim == 64 || head_dim == 128; }

// Bytes that launch_wgmma_attention_backward wants, 0 for heads that it does not take.
[[nodiscard]] inline std::size_t wgmma_backward_bytes(std::int64_t rows, std::int64_t sequences, std::int64_t heads,
                                                      std::int64_t head_dim) {
  if (!wgmma_backward_takes(head_dim)) return 0;
  WgmmaBackwardWork work{};
  return WgmmaBackwardWork::lay_out(rows, sequences, heads, head_dim, nullptr, work);
}

template <int kWidth>
struct WgmmaBackward {
  static constexpr int kGroups = 2;  // warpgroups, 64 keys each; one more copies
  static constexpr int kConsumers = kGroups * 128;
  static constexpr int kWarps = kGroups * 4;  // that compute
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kStages = 2;
  static constexpr int kColumns = kWidth / kGroups;  // of grad_q, a warpgroup's
  // Tiles of 64 columns in shared memory.
  static constexpr int kKeyTile = kWgmmaKeys * 128;
  static constexpr int kQueryTile = kWgmmaQueries * 128;
  static constexpr int kKeyBytes = kWidth / 64 * kKeyTile;
  static constexpr int kQueryBytes = kWidth / 64 * kQueryTile;
  static constexpr int kGradQBytes = kWgmmaQueries * kWidth * 4;
  static constexpr int kStatisticBytes = 2 * kWgmmaQueries * 4;
  // Offsets.
  static constexpr int kK = 0;
  static constexpr int kV = kK + kKeyBytes;
  static constexpr int kQ = kV + kKeyBytes;
  static constexpr int kGradO = kQ + kStages * kQueryBytes;
  static constexpr int kGradScores = kGradO + kStages * kQueryBytes;
  static constexpr int kGradQ = kGradScores + kStages * kKeyTile;
  static constexpr int kStatistics = kGradQ + kStages * kGradQBytes;
  static constexpr int kBarriers = kStatistics + kStages * kStatisticBytes;
  static constexpr int kSharedBytes = kBarriers + 192;

  // Where a thread of a warpgroup has four floats of its 64 x kColumns, those of columns [8 n, 8 n + 8).
  [[nodiscard]] __device__ static int grad_q_place(int group, int thread, int n) {
    return group * (kWgmmaQueries * kColumns) + (n * 128 + thread) * 4;
  }
};

inline constexpr int kConsumersBarrier = 1;  // named

inline constexpr int kGradQAdders = 3;                // warps that add to grad_q in turn
inline constexpr int kGradQSlots = 2 * kGradQAdders;  // of stages and warps

// Barriers in shared memory, of stages 0 and 1.
struct WgmmaBackwardBarriers {
  std::uint32_t base;
  [[nodiscard]] __device__ std::uint32_t keys_ready() const { return base; }
  [[nodiscard]] __device__ std::uint32_t q_ready(int stage) const { return at(1 + stage); }
  [[nodiscard]] __device__ std::uint32_t q_free(int stage) const { return at(3 + stage); }
  [[nodiscard]] __device__ std::uint32_t grad_o_ready(int stage) const { return at(5 + stage); }
  [[nodiscard]] __device__ std::uint32_t grad_o_free(int stage) const { return at(7 + stage); }
  [[nodiscard]] __device__ std::uint32_t grad_q_free(int stage) const { return at(9 + stage); }
  // The barrier of `slot` turn % kGradQSlots: a warp that adds waits for every phase of its slots.
  [[nodiscard]] __device__ std::uint32_t grad_q_ready(int slot) const { return at(11 + slot); }
  [[nodiscard]] __device__ std::uint32_t at(int i) const { return base + static_cast<std::uint32_t>(i) * 8; }
  __device__ void init(int warps) const {
    barrier_init(keys_ready(), 1);
    for (int stage = 0; stage < 2; ++stage) {
      barrier_init(q_ready(stage), 1);
      barrier_init(q_free(stage), warps);
      barrier_init(grad_o_ready(stage), 1);
      barrier_init(grad_o_free(stage), warps);
      barrier_init(grad_q_free(stage), 1);
    }
    for (int slot = 0; slot < kGradQSlots; ++slot) barrier_init(grad_q_ready(slot), warps);
    barrier_init_done();
  }
};

// What a block goes over: query tiles from the last to the first, all heads of the group of each.
struct WgmmaTurn {
  int tile, head, first_head, end_head;
  __device__ void next() {
    if (++head < end_head) return;
    head = first_head;
    --tile;
  }
};

}  // namespace hone
