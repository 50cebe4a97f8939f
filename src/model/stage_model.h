// A stage of a model whose layers are divided over a pipeline.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "passes/pipeline.h"

namespace hone {

// A Model around another, the whole one, with the weights that one stage reads. Programs are traced from the whole
// model and then cut (CompileOptions::stage). A weight that several stages read, such as an embedding that is the head
// as well, is a weight of each of them.
class StageModel final : public Model {
 public:
  // Throws Error that names pipeline_parallel_size if there are more stages than layers, or the model is not supported:
  // with experts, with layers for multi-token prediction, with an adapter.
  StageModel(std::unique_ptr<Model> whole, int stage, int stages);

  const ModelShape& shape() const override { return whole_->shape(); }
  const Json& config() const override { return whole_->config(); }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  const std::vector<WeightSpec>& traced_weights() const override { return whole_->traced_weights(); }
  const Model& whole() const override { return *whole_; }
  Tensor forward(WeightBinder& weights, Batch& batch) const override { return whole_->forward(weights, batch); }
  std::string_view head() const override { return whole_->head(); }
  std::string_view base_prefix() const override { return whole_->base_prefix(); }
  std::string_view left_out(std::string_view tensor) const override { return whole_->left_out(tensor); }
  Program adapted(Program program, const TraceUse& use) const override {
    return whole_->adapted(std::move(program), use);
  }
  const StageModel* stage() const override { return this; }

  [[nodiscard]] const std::shared_ptr<const StageCut>& cut() const { return cut_; }
  // Returns the first stage that has a weight. index: of the weight in whole().weights().
  [[nodiscard]] int first_holder(std::size_t index) const { return holders_[index].front(); }
  // Returns true if several stages, the first and the last one, have a weight. index: as above.
  [[nodiscard]] bool is_shared(std::size_t index) const { return holders_[index].size() > 1; }
  // Returns the weights that this stage shares; the first and the last stage have them in the same order.
  [[nodiscard]] const std::vector<std::string>& shared() const { return shared_; }
  // Returns true if a weight of this stage counts here, so that the weights of all stages count once.
  [[nodiscard]] bool counts(std::string_view weight) const;

 private:
  std::unique_ptr<Model> whole_;
  std::shared_ptr<const StageCut> cut_;
  std::vector<std::vector<int>> holders_;  // [weights of the whole model], the stages that read each, ascending
  std::vector<WeightSpec> specs_;
  std::vector<std::string> shared_;
};

// Returns the index of a weight in model.whole().weights().
[[nodiscard]] std::size_t whole_index(const Model& model, std::string_view weight);

}  // namespace hone
