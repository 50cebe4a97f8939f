// A stage of a model whose layers are divided over a pipeline.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/wrapped_model.h"
#include "passes/pipeline.h"

namespace hone {

// A Model around another with all layers, with the weights that one stage reads. That one is the whole model, or a
// rank's part of it (model/tensor_parallel_model.h). Programs are traced from it and then cut (CompileOptions::stage).
// A weight that several stages read, such as an embedding that is the head as well, is a weight of each of them.
class StageModel final : public WrappedModel {
 public:
  // chunks: ranges of layers of each stage, of which chunk c of stage s is that of number s + c x stages. Throws Error
  // that names pipeline_parallel_size, or virtual_pipeline_parallel_size, if there are more ranges than layers, or one
  // has no trained weight. A layer for multi-token prediction counts as the last layer.
  StageModel(const std::shared_ptr<const Model>& all, int stage, int stages, int chunks = 1);
  // Returns another stage of the same pipeline.
  [[nodiscard]] std::unique_ptr<StageModel> other(int stage) const;

  const Model& whole() const override { return base().whole(); }
  const StageModel* stage() const override { return this; }

  [[nodiscard]] int number() const { return stage_; }
  [[nodiscard]] int stages() const { return stages_; }
  [[nodiscard]] int chunks() const { return static_cast<int>(cuts_.size()); }
  // Returns the range of layers of a chunk among those of all chunks and stages.
  [[nodiscard]] const std::shared_ptr<const StageCut>& cut(int chunk = 0) const {
    return cuts_[static_cast<std::size_t>(chunk)];
  }
  // Returns true if a chunk has the last layers and the head.
  [[nodiscard]] bool is_last(int chunk) const { return cut(chunk)->is_last(); }
  // Returns the first stage that has a weight. index: of the weight in base().weights(), and in whole().weights().
  [[nodiscard]] int first_holder(std::size_t index) const { return holders_[index].front(); }
  // Returns true if several stages, the first and the last one, train a weight. index: as above.
  [[nodiscard]] bool is_shared(std::size_t index) const {
    return holders_[index].size() > 1 && base().weights()[index].trainable;
  }
  // Returns the trained weights that this stage shares; the first and the last stage have them in the same order.
  [[nodiscard]] const std::vector<std::string>& shared() const { return shared_; }
  // Returns true if a weight of this stage counts here, so that the weights of all stages count once.
  [[nodiscard]] bool counts(std::string_view weight) const;

 private:
  // The program whose layers are divided, traced from all of them, and the first layer of each range.
  struct Traced {
    Program program;
    std::vector<std::int64_t> first_layers;  // [stages x chunks]
  };
  [[nodiscard]] static Traced trace(const Model& all, int stages, int chunks);
  StageModel(std::shared_ptr<const Model> all, int stage, int stages, Traced traced);

  int stage_;
  int stages_;
  std::vector<std::shared_ptr<const StageCut>> cuts_;  // [chunks]
  std::vector<std::vector<int>> holders_;  // [weights of the whole model], the stages that read each, ascending
  std::vector<std::string> shared_;
};

// Returns the model with the weights of all stages of which a model is a stage, otherwise the model itself. Its weights
// are this rank's parts of those of whole(), in the same order.
[[nodiscard]] const Model& of_all_stages(const Model& model);
// Returns the index of a weight in model.whole().weights().
[[nodiscard]] std::size_t whole_index(const Model& model, std::string_view weight);

}  // namespace hone
