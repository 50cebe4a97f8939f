// The job that a training run is a part of: several processes that train one model together, or this process alone.
//
// Data parallel: each rank computes the gradients of its share of a step's batches, which are then summed over all
// ranks. All ranks take the same decisions, because these depend on sums and maxima over all ranks only.
//
// Context parallel: successive ranks of a data group form a context group, whose ranks have the same batches and
// compute different tokens of them. For weights, gradients and sums they are like data-parallel ranks.
//
// Tensor parallel: successive ranks form a tensor group, which computes as one rank would: they have parts of the
// weights and the same batches. Rank = data_rank x tensor_size + tensor_rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "system/peers.h"

namespace hone {

class Job {
 public:
  Job() = default;  // one process
  explicit Job(Peers* peers, int tensor_size = 1, int context_size = 1)
      : peers_(peers), tensor_size_(tensor_size), context_size_(context_size) {}

  [[nodiscard]] Peers* peers() const { return peers_; }  // null: one process
  [[nodiscard]] int rank() const { return peers_ != nullptr ? peers_->rank() : 0; }
  [[nodiscard]] int size() const { return peers_ != nullptr ? peers_->size() : 1; }
  [[nodiscard]] int tensor_size() const { return tensor_size_; }
  [[nodiscard]] int tensor_rank() const { return rank() % tensor_size_; }
  [[nodiscard]] int context_size() const { return context_size_; }
  [[nodiscard]] int context_rank() const { return data_rank() % context_size_; }
  // The number of this rank's context group, and of all groups, each of which reads other batches.
  [[nodiscard]] int reader() const { return data_rank() / context_size_; }
  [[nodiscard]] int readers() const { return data_size() / context_size_; }
  // The number of this rank's tensor group, and of all groups.
  [[nodiscard]] int data_rank() const { return rank() / tensor_size_; }
  [[nodiscard]] int data_size() const { return size() / tensor_size_; }
  // Ranks of the job: those of the tensor group of this rank, and those of all groups that have its parts of weights.
  [[nodiscard]] std::vector<int> tensor_group() const {
    std::vector<int> group;
    for (int t = 0; t < tensor_size_; ++t) group.push_back(data_rank() * tensor_size_ + t);
    return group;
  }
  [[nodiscard]] std::vector<int> data_group() const {
    std::vector<int> group;
    for (int d = 0; d < data_size(); ++d) group.push_back(d * tensor_size_ + tensor_rank());
    return group;
  }
  [[nodiscard]] std::vector<int> context_group() const {
    std::vector<int> group;
    for (int c = 0; c < context_size_; ++c)
      group.push_back((reader() * context_size_ + c) * tensor_size_ + tensor_rank());
    return group;
  }
  // Returns true for the rank that logs, saves and reports.
  [[nodiscard]] bool is_first() const { return rank() == 0; }

  // The following have no effect in a job of one process; see Peers.
  //
  // Replaces the values by their sums over the tensor groups, whose ranks have the same values.
  void sum(std::span<double> values) const {
    if (peers_ == nullptr) return;
    if (tensor_rank() != 0) std::ranges::fill(values, 0.0);
    peers_->sum(values);
  }
  void maximum(std::span<double> values) const {
    if (peers_ != nullptr) peers_->maximum(values);
  }
  [[nodiscard]] bool any(bool mine) const { return peers_ != nullptr ? peers_->any(mine) : mine; }
  void barrier() const {
    if (peers_ != nullptr) peers_->barrier();
  }
  [[nodiscard]] std::string broadcast(const std::string& text) const {
    return peers_ != nullptr ? peers_->broadcast(text) : text;
  }
  void set_activity(std::string activity) const {
    if (peers_ != nullptr) peers_->set_activity(std::move(activity));
  }

 private:
  Peers* peers_ = nullptr;
  int tensor_size_ = 1;
  int context_size_ = 1;
};

// Calls prepare() on the first rank of each machine and then on the others, which find its files in the caches.
template <class Prepare>
auto prepare_in_turn(const Job& job, const Prepare& prepare) {
  const bool later = job.peers() != nullptr && job.peers()->place().local_rank > 0;
  if (later) job.barrier();
  auto prepared = prepare();
  if (!later) job.barrier();
  return prepared;
}

}  // namespace hone
