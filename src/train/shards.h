// Division of the optimizer's work over the ranks of a job (Rajbhandari et al., "ZeRO: Memory optimizations toward
// training trillion parameter models", 2020). Stage 1: each rank keeps the states of its share of the weights and
// updates it, and the updated weights are gathered. Stage 2: it has the gradients of its share only. Stage 3: and the
// weights, which are gathered where programs read them (passes/shard.h). No update depends on the division.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/collective.h"
#include "model/model.h"
#include "passes/shard.h"
#include "program/tensor_store.h"
#include "train/update_rule.h"

namespace hone {

// Rows of a weight block.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Shares of the trainable weights, of about equal numbers of elements.
//
// In stage 1 they are consecutive, in the order of the model. A share begins at a row, and at an element that is a
// multiple of kStateBlock, so that the scales of 8-bit moments and random bits are those of the whole. With divided
// gradients each large weight is divided over all ranks, so that all of them send when it is gathered, at multiples of
// kNormBlock, so that the norm has the same bits; a small one has one owner, the rank with the least so far. A weight
// whose update needs all of it (Muon's matrices, SGD, rules of a kind) has one owner.
//
// Weights of divided experts are divided over the ranks that have the same experts, others over all ranks.
class UpdateShards {
 public:
  UpdateShards(const Model& model, const OptimizerOptions& options, int ranks);

  // Rows of the model's weight `index` that a rank updates; of count 0 if there are none or it is not trainable.
  [[nodiscard]] RowRange rows_of(std::size_t index, int rank) const;
  // Returns the number of ranks that a weight is divided over.
  [[nodiscard]] int members(std::size_t index) const { return is_expert(index) ? expert_members_ : ranks_; }
  // Returns the ranges of bytes of a store of the weights that the ranks have updated, [calls][members], for calls of
  // Collective::all_gather(): of divided experts, or of the other weights. Neighbouring weights of a rank are one
  // range.
  [[nodiscard]] std::vector<std::vector<ByteRange>> gathered(const TensorStore& weights, bool experts = false) const;
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  // Returns true for the weights of divided experts.
  [[nodiscard]] bool is_expert(std::size_t index) const;

 private:
  void cut_in_order(const OptimizerOptions& options, bool experts);
  void cut_each(const OptimizerOptions& options, bool experts);

  const Model* model_;
  int ranks_;
  bool divides_experts_;
  int expert_members_;                           // ranks that have the same experts
  std::vector<std::vector<std::int64_t>> cuts_;  // [weights][members + 1]: the first row of each member's share
};

// Returns the division of gradients and weights that programs of the model have; null if both are whole.
[[nodiscard]] std::shared_ptr<const WeightShares> shares_of_programs(const Model& model,
                                                                     const OptimizerOptions& options);

// Returns the weights of the model as a rank stores them: with its rows only if weights are divided.
[[nodiscard]] std::vector<NamedType> stored_weights(const Model& model, DType dtype, const OptimizerOptions& options);

// Returns the type of the part of a state or a weight that belongs to these rows. whole: the type of the weight.
[[nodiscard]] Type type_of_rows(const Type& tensor, const Type& whole, RowRange rows);

}  // namespace hone
