// A rank's part of a model whose experts are divided over an expert group, and of the programs of that model.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "passes/expert_parallel.h"

namespace hone {

// A Model around another, the whole one. Of each weight of the kind `expert` it has the rows of this rank's experts,
// successive ones; other weights are whole. load_weights() loads the parts. Programs are traced from the whole model
// and then divided (passes/expert_parallel.h).
class ExpertParallelModel final : public Model {
 public:
  // Throws Error that names expert_parallel_size if the model has no mixture of experts, the ranks do not divide the
  // experts, or the model has an adapter.
  ExpertParallelModel(std::unique_ptr<Model> whole, int rank, int ranks);

  const ModelShape& shape() const override { return whole_->shape(); }
  const Json& config() const override { return whole_->config(); }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  const std::vector<WeightSpec>& traced_weights() const override { return whole_->traced_weights(); }
  const Model& whole() const override { return *whole_; }
  Tensor forward(WeightBinder& weights, Batch& batch) const override { return whole_->forward(weights, batch); }
  std::string_view head() const override { return whole_->head(); }
  std::string_view base_prefix() const override { return whole_->base_prefix(); }
  std::string_view left_out(std::string_view tensor) const override { return whole_->left_out(tensor); }
  Program adapted(Program program, const TraceUse& use) const override;

 private:
  std::unique_ptr<Model> whole_;
  ExpertDivision division_;
  std::vector<WeightSpec> specs_;
};

// Returns what a rank of an expert group has of a weight: the rows of its experts, or all of it if it is of another
// kind. The parts that it has are whole, and is_divided() (model/tensor_parallel_model.h) is true for it.
[[nodiscard]] WeightSpec expert_spec(const WeightSpec& whole, int rank, int ranks);

}  // namespace hone
