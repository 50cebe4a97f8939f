// The job that a training run is a part of: several processes that train one model together, or this process alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "system/peers.h"
#include "train/mesh.h"

namespace hone {

class Job : public Mesh {
 public:
  Job() = default;  // one process
  explicit Job(Peers* peers, const JobShape& shape = {})
      : Mesh(peers != nullptr ? peers->rank() : 0, peers != nullptr ? peers->size() : 1, shape), peers_(peers) {}

  [[nodiscard]] Peers* peers() const { return peers_; }  // null: one process
  // Returns true for the rank that logs, saves and reports.
  [[nodiscard]] bool is_first() const { return rank() == 0; }

  // The following have no effect in a job of one process; see Peers.
  //
  // Replaces the values by their sums over the tensor groups, whose ranks have the same values, of the last stage,
  // where a pipeline ends.
  void sum(std::span<double> values) const {
    if (peers_ == nullptr) return;
    if (!is_last_stage() || tensor_rank() != 0) std::ranges::fill(values, 0.0);
    peers_->sum(values);
  }
  // Replaces the values by their sums over all ranks.
  void sum_ranks(std::span<double> values) const {
    if (peers_ != nullptr) peers_->sum(values);
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
  // Returns the text of the first rank of this rank's tensor group. Its ranks call it together.
  [[nodiscard]] std::string broadcast_in_tensor_group(const std::string& text) const {
    return tensor_size() > 1 ? peers_->broadcast(text, tensor_group()) : text;
  }
  void set_activity(std::string activity) const {
    if (peers_ != nullptr) peers_->set_activity(std::move(activity));
  }

 private:
  Peers* peers_ = nullptr;
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
