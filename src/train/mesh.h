// The mesh of a training job: which part of the model, of a step's batches and of their tokens each rank has.
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
// layers, or several ranges of them in turn with the others. Rank = (stage x data_size + data_rank) x
// tensor_size + tensor_rank.
//
// Expert parallel: successive ranks of a data group form an expert group, each with some of the experts of mixtures.
// They are data or context parallel otherwise. Ranks of a data group with the same experts are those with the same rank
// modulo the size of an expert group. In tensor groups it is the experts of a tensor rank that they divide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hone {

// The numbers of ranks in the groups of each kind.
struct JobShape {
  int tensor_size = 1;
  int pipeline_size = 1;
  int expert_size = 1;
  int context_size = 1;
};

// A key by which groups of processes divide a model or its tokens, and their size.
struct GroupSize {
  const char* key;
  std::int64_t size;
  bool of_weights;  // each process of a group has a part of the weights
  bool of_tokens;   // each process computes other tokens than the others of its group, which is within a data group
};

// Numbers a rank within its groups.
class Mesh {
 public:
  Mesh() = default;  // one rank
  // size: of the job, which the sizes of groups divide; rank: of this process
  Mesh(int rank, int size, const JobShape& shape) : rank_(rank), size_(size), shape_(shape) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const JobShape& shape() const { return shape_; }
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
    return group_of(shape_.tensor_size, [&](int t) { return rank_of(stage(), data_rank(), t); });
  }
  [[nodiscard]] std::vector<int> data_group() const {
    return group_of(data_size(), [&](int d) { return rank_of(stage(), d, tensor_rank()); });
  }
  [[nodiscard]] std::vector<int> pipeline_group() const {
    return group_of(shape_.pipeline_size, [&](int s) { return rank_of(s, data_rank(), tensor_rank()); });
  }
  [[nodiscard]] int expert_size() const { return shape_.expert_size; }
  [[nodiscard]] int expert_rank() const { return data_rank() % shape_.expert_size; }
  // Ranks of the expert group of this rank, and those of all groups that have its experts.
  [[nodiscard]] std::vector<int> expert_group() const {
    return group_of(shape_.expert_size,
                    [&](int e) { return rank_of(stage(), data_rank() - expert_rank() + e, tensor_rank()); });
  }
  // The number of the groups that have the experts of this rank.
  [[nodiscard]] int same_experts_size() const { return data_size() / shape_.expert_size; }
  [[nodiscard]] std::vector<int> same_experts_group() const {
    return group_of(same_experts_size(),
                    [&](int g) { return rank_of(stage(), expert_rank() + g * shape_.expert_size, tensor_rank()); });
  }
  [[nodiscard]] std::vector<int> context_group() const {
    return group_of(shape_.context_size,
                    [&](int c) { return rank_of(stage(), reader() * shape_.context_size + c, tensor_rank()); });
  }

 private:
  // Returns rank(0) to rank(size - 1).
  template <class Rank>
  static std::vector<int> group_of(int size, const Rank& rank) {
    std::vector<int> group(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) group[static_cast<std::size_t>(i)] = rank(i);
    return group;
  }

  int rank_ = 0;
  int size_ = 1;
  JobShape shape_;
};

}  // namespace hone
