// Division of the optimizer's work over the ranks of a job (ZeRO stage 1, Rajbhandari et al., "ZeRO: Memory
// optimizations toward training trillion parameter models", 2020): each rank keeps the states of its share of the
// weights and updates it, and the updated weights are gathered. No number depends on the division.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/collective.h"
#include "model/model.h"
#include "program/tensor_store.h"
#include "train/update_rule.h"

namespace hone {

// Rows of a weight block.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Consecutive shares of the trainable weights, in the order of the model, of about equal numbers of elements. A share
// begins at a row, and at an element that is a multiple of kStateBlock, so that the scales of 8-bit moments and random
// bits are those of the whole. A weight whose update needs all of it (Muon's matrices, rules of a kind) has one owner.
class UpdateShards {
 public:
  UpdateShards(const Model& model, const OptimizerOptions& options, int ranks);

  // Rows of the model's weight `index` that a rank updates; of count 0 if there are none or it is not trainable.
  [[nodiscard]] RowRange rows_of(std::size_t index, int rank) const;
  // Returns the ranges of bytes of a store of the weights that the ranks have updated, [calls][ranks], for calls of
  // Collective::all_gather(). Neighbouring weights of a rank are one range.
  [[nodiscard]] std::vector<std::vector<ByteRange>> gathered(const TensorStore& weights) const;
  [[nodiscard]] int ranks() const { return static_cast<int>(cuts_.size()) - 1; }
  [[nodiscard]] const Model& model() const { return *model_; }

 private:
  const Model* model_;
  std::vector<std::vector<std::int64_t>> cuts_;  // [ranks + 1][weights]: the first row of each rank's share
};

// Returns the type of the part of a state or a weight that belongs to these rows. whole: the type of the weight.
[[nodiscard]] Type type_of_rows(const Type& tensor, const Type& whole, RowRange rows);

}  // namespace hone
