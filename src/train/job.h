// The job that a training run is a part of: several processes that train one model together, or this process alone.
//
// Data parallel: each rank computes the gradients of its share of a step's batches, which are then summed over all
// ranks. All ranks take the same decisions, because these depend on sums and maxima over all ranks only.
//
// Context parallel: successive ranks of a data group form a context group, whose ranks have the same batches and
// compute different tokens of them. For weights, gradients and sums they are like data-parallel ranks.
//
// Tensor parallel: successive ranks form a tensor group, which computes as one rank would: they have parts of the
// weights and the same batches.
//
// Pipeline parallel: one rank of each stage form a pipeline, which computes the same batches: a stage has consecutive
// layers. Rank = (stage x data_size + data_rank) x tensor_size + tensor_rank.
//
// Expert parallel: successive ranks form an expert group, each with some of the experts of mixtures. They are data
// parallel otherwise. Ranks with the same experts are those with the same rank modulo the size of a group. There is no
// pipeline then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "system/peers.h"

namespace hone {

// The numbers of ranks in the groups of each kind.
struct JobShape {
  int tensor_size = 1;
  int pipeline_size = 1;
  int expert_size = 1;
  int context_size = 1;
};

class Job {
 public:
  Job() = default;  // one process
  explicit Job(Peers* peers, const JobShape& shape = {}) : peers_(peers), shape_(shape) {}

  [[nodiscard]] Peers* peers() const { return peers_; }  // null: one process
  [[nodiscard]] int rank() const { return peers_ != nullptr ? peers_->rank() : 0; }
  [[nodiscard]] int size() const { return peers_ != nullptr ? peers_->size() : 1; }
  [[nodiscard]] int tensor_size() const { return shape_.tensor_size; }
  [[nodiscard]] int tensor_rank() const { return rank() % shape_.tensor_size; }
  [[nodiscard]] int pipeline_size() const { return shape_.pipeline_size; }
  [[nodiscard]] int stage() const { return rank() / shape_.tensor_size / data_size(); }
  [[nodiscard]] bool is_last_stage() const { return stage() + 1 == shape_.pipeline_size; }
  [[nodiscard]] int context_size() const { return shape_.context_size; }
  [[nodiscard]] int context_rank() const { return data_rank() % shape_.context_size; }
  // The number of this rank's context group, and of all groups, each of which reads other batches.
  [[nodiscard]] int reader() const { return data_rank() / shape_.context_size; }
  [[nodiscard]] int readers() const { return data_size() / shape_.context_size; }
  // The number of this rank's tensor group within its stage, and of all groups of a stage.
  [[nodiscard]] int data_rank() const { return rank() / shape_.tensor_size % data_size(); }
  [[nodiscard]] int data_size() const { return size() / shape_.tensor_size / shape_.pipeline_size; }
  [[nodiscard]] int rank_of(int stage, int data_rank, int tensor_rank) const {
    return (stage * data_size() + data_rank) * shape_.tensor_size + tensor_rank;
  }
  // Ranks of the job: those of the tensor group of this rank, those of all groups that have its parts of weights, and
  // those of its pipeline, by stage.
  [[nodiscard]] std::vector<int> tensor_group() const {
    std::vector<int> group;
    for (int t = 0; t < shape_.tensor_size; ++t) group.push_back(rank_of(stage(), data_rank(), t));
    return group;
  }
  [[nodiscard]] std::vector<int> data_group() const {
    std::vector<int> group;
    for (int d = 0; d < data_size(); ++d) group.push_back(rank_of(stage(), d, tensor_rank()));
    return group;
  }
  [[nodiscard]] std::vector<int> pipeline_group() const {
    std::vector<int> group;
    for (int s = 0; s < shape_.pipeline_size; ++s) group.push_back(rank_of(s, data_rank(), tensor_rank()));
    return group;
  }
  [[nodiscard]] int expert_size() const { return shape_.expert_size; }
  [[nodiscard]] int expert_rank() const { return rank() % shape_.expert_size; }
  // Ranks of the expert group of this rank, and those of all groups that have its experts.
  [[nodiscard]] std::vector<int> expert_group() const {
    std::vector<int> group;
    for (int e = 0; e < shape_.expert_size; ++e) group.push_back(rank() - expert_rank() + e);
    return group;
  }
  [[nodiscard]] std::vector<int> same_experts_group() const {
    std::vector<int> group;
    for (int r = expert_rank(); r < size(); r += shape_.expert_size) group.push_back(r);
    return group;
  }
  [[nodiscard]] std::vector<int> context_group() const {
    std::vector<int> group;
    for (int c = 0; c < shape_.context_size; ++c)
      group.push_back(rank_of(stage(), reader() * shape_.context_size + c, tensor_rank()));
    return group;
  }
  // Returns true for the rank that logs, saves and reports.
  [[nodiscard]] bool is_first() const { return rank() == 0; }

  // The following have no effect in a job of one process; see Peers.
  //
  // Replaces the values by their sums over the tensor groups, whose ranks have the same values, of the last stage,
  // where a pipeline ends.
  void sum(std::span<double> values) const {
    if (peers_ == nullptr) return;
    if (!is_last_stage()) std::ranges::fill(values, 0.0);
    sum_stages(values);
  }
  // The same over the tensor groups of all stages.
  void sum_stages(std::span<double> values) const {
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
  JobShape shape_;
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
