// Memory layout and barriers of the backward pass on Hopper (wgmma_backward.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "ops/attention/tiles.cuh"
#include "ops/attention/wgmma_backward_turns.cuh"
#include "ops/attention/wgmma_schedule.cuh"
#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kWgmmaKeys = 128;  // keys of a block
inline constexpr int kGradQAdders = 3;  // warps that add to grad_q in turn

// Workspace in device memory. Query tiles are those of sequence_tile(query sequences, 1, kWgmmaQueries, index).
struct WgmmaBackwardWork {
  float* grad_q;        // [tiles, heads] of kWgmmaQueries x head_dim in the order of WgmmaBackward::grad_q_place
  float* statistics;    // [tiles, heads, 2, kWgmmaQueries]: lse log2(e), overlap; infinity and 0 past the end
  std::int32_t* turns;  // [tiles, heads]: number of key blocks that have added to grad_q
  std::byte* schedule;  // AttentionSchedule of tiles of kWgmmaKeys keys

  // Returns the size in bytes and sets the pointers into `from`; if that is null, to null.
  static std::size_t lay_out(const WgmmaBackwardSizes& sizes, std::byte* from, WgmmaBackwardWork& work) {
    const std::int64_t tiles = (sizes.rows / kWgmmaQueries + sizes.sequences + 1) * sizes.heads;
    std::size_t bytes = 0;
    const auto take = [&]<class T>(T*& pointer, std::int64_t count) {
      pointer = from != nullptr ? reinterpret_cast<T*>(from + bytes) : nullptr;
      bytes += static_cast<std::size_t>(ceil_div(count * static_cast<std::int64_t>(sizeof(T)), 256) * 256);
    };
    take(work.grad_q, tiles * kWgmmaQueries * sizes.head_dim);
    take(work.statistics, tiles * 2 * kWgmmaQueries);
    take(work.turns, tiles);
    take(work.schedule,
         static_cast<std::int64_t>(AttentionSchedule::bytes(sizes.key_rows / kWgmmaKeys + sizes.key_sequences + 1)));
    return bytes;
  }
};

[[nodiscard]] inline bool wgmma_backward_takes(std::int64_t head_dim, std::int64_t value_dim) {
  const bool even = head_dim == value_dim && (head_dim == 64 || head_dim == 128);
  return even || (head_dim == 192 && value_dim == 128);
}

// Bytes of workspace for launch_wgmma_attention_backward; 0 for heads that it does not support.
[[nodiscard]] inline std::size_t wgmma_backward_bytes(const WgmmaBackwardSizes& sizes, std::int64_t value_dim) {
  if (!wgmma_backward_takes(sizes.head_dim, value_dim)) return 0;
  WgmmaBackwardWork work{};
  return WgmmaBackwardWork::lay_out(sizes, nullptr, work);
}

// Sizes for heads of kWidth whose values have kValues columns.
template <int kWidth, int kValues>
struct WgmmaBackward {
  static constexpr int kGroups = 2;  // warpgroups, 64 keys each; one more copies
  static constexpr int kConsumers = kGroups * 128;
  static constexpr int kWarps = kGroups * 4;  // computing warps
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kStages = 2;
  static constexpr bool kWide = kWidth > 128;
  static constexpr int kGradScoreStages = kWide ? 1 : 2;
  static constexpr int kGradQStages = kWide ? 1 : 2;
  static constexpr int kColumns = kWidth / kGroups;  // columns of grad_q that a warpgroup computes
  // Bytes of tiles of 64 columns, of operands and of stages.
  static constexpr int kKeyTile = kWgmmaKeys * 128;
  static constexpr int kQueryTile = kWgmmaQueries * 128;
  static constexpr int kKeyBytes = kWidth / 64 * kKeyTile;
  static constexpr int kValueBytes = kValues / 64 * kKeyTile;
  static constexpr int kQueryBytes = kWidth / 64 * kQueryTile;
  static constexpr int kGradOBytes = kValues / 64 * kQueryTile;
  static constexpr int kGradQBytes = kWgmmaQueries * kWidth * 4;
  static constexpr int kStatisticBytes = 2 * kWgmmaQueries * 4;
  // Offsets in shared memory, in bytes.
  static constexpr int kK = 0;
  static constexpr int kV = kK + kKeyBytes;
  static constexpr int kQ = kV + kValueBytes;
  static constexpr int kGradO = kQ + kStages * kQueryBytes;
  static constexpr int kGradScores = kGradO + kStages * kGradOBytes;
  static constexpr int kGradQ = kGradScores + kGradScoreStages * kKeyTile;
  static constexpr int kStatistics = kGradQ + kGradQStages * kGradQBytes;
  static constexpr int kBarriers = kStatistics + kStages * kStatisticBytes;
  static constexpr int kSharedBytes = kBarriers + 192;

  // Index, in floats, of the four values that a thread of a warpgroup has in columns [8 n, 8 n + 8) of grad_q's tile.
  [[nodiscard]] __device__ static int grad_q_place(int group, int thread, int n) {
    return group * (kWgmmaQueries * kColumns) + (n * 128 + thread) * 4;
  }
  // The first of these columns. A product's columns may begin in the middle of a tile of 64, but not cross into the
  // next one: of 192 columns the warpgroups have the tiles 0 and 2, and half of tile 1 each.
  [[nodiscard]] __host__ __device__ static constexpr int grad_q_column(int group, int n) {
    if constexpr (kWide) return n < 8 ? group * 128 + 8 * n : 64 + group * 32 + 8 * (n - 8);
    return group * kColumns + 8 * n;
  }

  static constexpr int kGradQSlots = kGradQStages * kGradQAdders;  // pairs of stage and warp
};

inline constexpr int kConsumersBarrier = 1;  // id of the named barrier of both computing warpgroups

// Addresses of the mbarriers in shared memory; q, grad_o and grad_q_free have one for stages 0 and 1 each.
struct WgmmaBackwardBarriers {
  std::uint32_t base;
  [[nodiscard]] __device__ std::uint32_t keys_ready() const { return base; }
  [[nodiscard]] __device__ std::uint32_t q_ready(int stage) const { return at(1 + stage); }
  [[nodiscard]] __device__ std::uint32_t q_free(int stage) const { return at(3 + stage); }
  [[nodiscard]] __device__ std::uint32_t grad_o_ready(int stage) const { return at(5 + stage); }
  [[nodiscard]] __device__ std::uint32_t grad_o_free(int stage) const { return at(7 + stage); }
  [[nodiscard]] __device__ std::uint32_t grad_q_free(int stage) const { return at(9 + stage); }
  // One barrier for each slot, turn % kGradQSlots, and not for each stage: an adding warp then waits for every phase of
  // its barriers, as waiting for a parity requires.
  [[nodiscard]] __device__ std::uint32_t grad_q_ready(int slot) const { return at(11 + slot); }
  [[nodiscard]] __device__ std::uint32_t grad_scores_free() const { return at(17); }  // if there is one stage
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
    for (int slot = 0; slot < 2 * kGradQAdders; ++slot) barrier_init(grad_q_ready(slot), warps);
    barrier_init(grad_scores_free(), warps);
    barrier_init_done();
  }
};

}  // namespace hone
