// Attention of few query rows by pairs of blocks, for so few sequences that half of the SMs would have nothing to do.
//
// One SM reads some 50 GB/s, whatever is under way, which is 1.3 us for a tile of 128 keys and their values. Here the
// two blocks of a cluster have an item: the first one reads keys and computes scores and weights, the second one reads
// values and adds what these weigh, up to four tiles behind. Sums are in the order of DecodeCompute, so that the bits
// are the same.
//
//   block 0: copy -> K -> scores, weights, sums -> messages 0 to 3 of block 0
//                                                  |  one copy each, from shared memory to shared memory
//   block 1: copy -> V -> O   <------------------- messages 0 to 3 of block 1
//
// A message has P in bf16, the factors of O and the maxima, and after the last tile of a split its totals. Block 1
// expects the bytes of each message on its barrier `filled`, and its warps arrive at block 0's `read` when they have
// used them.
#pragma once

#include "backend/cuda/cluster.cuh"
#include "ops/attention/wgmma_decode_compute.cuh"

namespace hone {

// The warpgroup that computes, in either block.
template <class Plan>
struct DecodePairCompute : DecodeCompute<Plan> {
  using Base = DecodeCompute<Plan>;
  using Base::add_weights;
  using Base::barriers;
  using Base::buffers;
  using Base::clear_outputs;
  using Base::column;
  using Base::floats;
  using Base::greatest;
  using Base::lane;
  using Base::meet;
  using Base::next_stage;
  using Base::passed;
  using Base::release;
  using Base::shared;
  using Base::thread;

  // Adds the weights of the tile to the sums and passes the message on, with the totals after the last tile.
  __device__ void pass_message(bool last) {
    meet();
    if (!last) copy_message();
    add_weights();
    if (last) {
      Base::reduce_sums();
      if (thread() < Plan::kRows) {
        floats(passed(Plan::kPassedTotals, 0))[thread()] = floats(Plan::kTotals)[thread()];
        fence_async_shared();
      }
      meet();
      copy_message();
    }
    buffers.next();
  }
  __device__ void copy_message() const {
    if (thread() != 0) return;
    const auto at = shared + static_cast<std::uint32_t>(Base::rounded());
    cluster_copy(cluster_address(at, 1), at, Plan::kMessageBytes, cluster_address(barriers.filled(buffers.place), 1));
  }

  // Compute the `count` tiles of keys of a split, from tile `first` on, as split() does.
  __device__ void score_split(int first, int count, bool ends) {
    greatest[0] = greatest[1] = -std::numeric_limits<float>::infinity();
    clear_outputs();
    for (int i = 0; i < count; ++i) {
      const int keys = next_stage();
      Base::template start<true, false>(keys, 0);
      Base::wait();
      release(keys);
      const bool last = i + 1 == count;
      if (ends && last && lane() == 0) barrier_arrive(barriers.q_free());
      Base::online_softmax_step(first + i);
      pass_message(last);
    }
  }
  __device__ void value_split(int first, int count, int keys) {
    clear_outputs();
    for (int i = 0; i < count; ++i) {
      const int values = next_stage();
      const int last_keys = keys - (first + i) * kForwardKeys;
      if (last_keys < kForwardKeys) Base::clear_values(values, last_keys);
      barrier_wait(barriers.filled(buffers.place), buffers.parity);
      if (thread() == 0) barrier_expect(barriers.filled(buffers.place), Plan::kMessageBytes);  // the next one
      Base::decay_outputs(Base::decays()[column()], Base::decays()[column() + 1]);
      Base::template start<false, true>(0, values);
      if (i + 1 == count) {
        greatest[0] = floats(passed(Plan::kGreatest, 0))[column()];
        greatest[1] = floats(passed(Plan::kGreatest, 0))[column() + 1];
        if (thread() < Plan::kRows) {
          floats(Plan::kTotals)[thread()] = floats(passed(Plan::kPassedTotals, 0))[thread()];
        }
      }
      Base::wait();
      release(values);
      __syncwarp();
      if (lane() == 0) cluster_arrive(cluster_address(barriers.read(buffers.place), 0));
      buffers.next();
    }
    meet();
  }
};

}  // namespace hone
