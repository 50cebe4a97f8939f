// A rank's part of a model whose experts are divided over an expert group, and of the programs of that model.
#pragma once

#include <memory>

#include "model/wrapped_model.h"
#include "passes/expert_parallel.h"

namespace hone {

// A Model around another, the whole one or a rank's part in a tensor group (model/tensor_parallel_model.h). Of each
// weight of the kind `expert` it has the rows of this rank's experts, successive ones of those that the other has;
// other weights are as there. load_weights() loads the parts. Programs are traced from the whole model and then divided
// (passes/expert_parallel.h).
class ExpertParallelModel final : public WrappedModel {
 public:
  // Throws Error that names expert_parallel_size if the model has no mixture of experts, the ranks do not divide the
  // experts, or the model has an adapter.
  ExpertParallelModel(std::unique_ptr<Model> base, int rank, int ranks);

  const Model& whole() const override { return base().whole(); }
  Program adapted(Program program, const TraceUse& use) const override;

 private:
  ExpertDivision division_;
};

// Returns what a rank of an expert group has of a weight: the rows of its experts, or all of it if it is of another
// kind. The parts that it has are whole, and is_divided() (model/tensor_parallel_model.h) is true for it.
[[nodiscard]] WeightSpec expert_spec(const WeightSpec& whole, int rank, int ranks);

}  // namespace hone
