// The copying warpgroup of the backward pass on Hopper (wgmma_backward.cuh). One thread copies keys, values and the
// tiles of queries to shared memory; one thread in each of the three other warps adds the block's parts of grad_q to
// the sums in device memory.
#pragma once

#include "ops/attention/wgmma_backward_plan.cuh"

namespace hone {

// keys: [rows, key heads, then value heads].
struct WgmmaBackwardMaps {
  CUtensorMap q, keys, grad_o, statistics;
};

// Copies the block's keys and values once, then q with its statistics and grad_o for each turn as stages become free.
template <class Plan, class Turn>
__device__ void wgmma_backward_copy(const WgmmaBackwardMaps& maps, const SequenceTile& tile, Turn turn, int turns,
                                    int heads, int kv_heads, int kv_head, std::uint32_t shared,
                                    const WgmmaBackwardBarriers& barriers) {
  const auto first_key = static_cast<int>(tile.token) + tile.first;
  barrier_expect(barriers.keys_ready(), Plan::kKeyBytes + Plan::kValueBytes);
  for (int row = 0; row < kWgmmaKeys; row += kWgmmaQueries) {
    const auto copy = [&](int to, int bytes, int head) {
      for (int part = 0; part < bytes / Plan::kKeyTile; ++part) {
        bulk_copy_box(shared + static_cast<std::uint32_t>(to + part * Plan::kKeyTile + row * 128), maps.keys, part * 64,
                      head, first_key + row, barriers.keys_ready());
      }
    };
    copy(Plan::kK, Plan::kKeyBytes, kv_head);
    copy(Plan::kV, Plan::kValueBytes, kv_heads + kv_head);
  }
  for (int i = 0; i < turns; ++i, turn.next()) {
    const int stage = i % 2;
    const int parity = i / 2 % 2;
    const int row = turn.row();
    barrier_wait(barriers.q_free(stage), parity ^ 1);
    barrier_expect(barriers.q_ready(stage), Plan::kQueryBytes + Plan::kStatisticBytes);
    for (int part = 0; part < Plan::kQueryBytes / Plan::kQueryTile; ++part) {
      bulk_copy_box(shared + Plan::kQ + static_cast<std::uint32_t>(stage * Plan::kQueryBytes + part * Plan::kQueryTile),
                    maps.q, part * 64, turn.head, row, barriers.q_ready(stage));
    }
    bulk_copy_row(shared + Plan::kStatistics + static_cast<std::uint32_t>(stage * Plan::kStatisticBytes),
                  maps.statistics, turn.index() * heads + turn.head, barriers.q_ready(stage));
    barrier_wait(barriers.grad_o_free(stage), parity ^ 1);
    barrier_expect(barriers.grad_o_ready(stage), Plan::kGradOBytes);
    for (int part = 0; part < Plan::kGradOBytes / Plan::kQueryTile; ++part) {
      bulk_copy_box(
          shared + Plan::kGradO + static_cast<std::uint32_t>(stage * Plan::kGradOBytes + part * Plan::kQueryTile),
          maps.grad_o, part * 64, turn.head, row, barriers.grad_o_ready(stage));
    }
  }
}

// Adds the block's parts of grad_q to the sums in device memory, in ascending order of key blocks, which fixes the
// order of the sum. Called by one thread of warp `adder` of kGradQAdders. From the wait for turns[at] to its increment
// takes about as long as two products, hence several warps.
template <class Plan, class Turn>
__device__ void wgmma_backward_add(const WgmmaBackwardWork& work, const SequenceTile& tile, Turn turn, int turns,
                                   int heads, int adder, std::uint32_t shared, const WgmmaBackwardBarriers& barriers) {
  const int block = tile.first / kWgmmaKeys;
  for (int i = 0, slot = 0, parity = 0; i < turns; ++i, turn.next()) {
    if (slot % kGradQAdders == adder) {
      const int at = turn.index() * heads + turn.head;
      float* to = work.grad_q + static_cast<std::int64_t>(at) * (Plan::kGradQBytes / 4);
      const int stage = slot % Plan::kGradQStages;
      const std::uint32_t from = shared + Plan::kGradQ + static_cast<std::uint32_t>(stage * Plan::kGradQBytes);
      // The blocks with smaller keys have added theirs.
      while (block > 0 && load_acquire(work.turns + at) != block) {
      }
      fence_async();
      barrier_wait(barriers.grad_q_ready(slot), parity);
      if (block == 0) {
        bulk_store(to, from, Plan::kGradQBytes);
      } else {
        bulk_add(to, from, Plan::kGradQBytes);
      }
      bulk_commit();
      bulk_wait_read();
      barrier_arrive(barriers.grad_q_free(stage));
      bulk_wait();
      store_release(work.turns + at, block + 1);
    }
    if (++slot == Plan::kGradQSlots) slot = 0, parity ^= 1;
  }
}

}  // namespace hone
