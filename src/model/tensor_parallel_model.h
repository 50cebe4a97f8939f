// A rank's part of a model that a tensor group divides, and of the programs of that model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "passes/tensor_parallel.h"
#include "program/tensor_store.h"

namespace hone {

// A Model around another, the whole one. Its weights are this rank's parts, cut along the axes that the family declares
// (PartAxis): attention heads, channels of an MLP, tokens of the vocabulary; norms and other weights are whole on all
// ranks. load_weights() loads the parts. Programs are traced from the whole model and then divided
// (passes/tensor_parallel.h). The parts keep the checkpoint's names and know their place there (PartBox). A vocabulary
// that the ranks do not divide stays whole, with a notice.
class TensorParallelModel final : public Model {
 public:
  // Throws Error that names tensor_parallel_size and what the ranks do not divide, or what is not supported: experts,
  // adapters.
  TensorParallelModel(std::unique_ptr<Model> whole, int rank, int ranks);

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
  TensorDivision division_;
  std::vector<WeightSpec> specs_;
};

// Returns what a rank of a tensor group has of a weight: some of its rows or columns, or all of it.
[[nodiscard]] WeightSpec part_spec(const WeightSpec& whole, int rank, int ranks);
// Returns true if a rank has some elements of the weight only.
[[nodiscard]] bool is_divided(const WeightSpec& spec);

// Returns the bytes of this rank's part of a weight. index: of the weight in model.weights(); weight: the store of the
// whole weight, under its name.
[[nodiscard]] std::vector<std::byte> part_of(const Model& model, std::size_t index, const TensorStore& weight);
// Copies the elements of a rank's part to the whole weight. `whole` is the spec of the same weight in Model::whole();
// size: bytes of an element.
void put_part(const WeightSpec& part, const WeightSpec& whole, std::size_t size, std::span<const std::byte> from,
              std::span<std::byte> to);

}  // namespace hone
