// A rank's part of a model that a tensor group divides, and of the programs of that model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "model/wrapped_model.h"
#include "passes/tensor_parallel.h"
#include "program/tensor_store.h"

namespace hone {

// A Model around another, the whole one. Its weights are this rank's parts, cut along the axes that the family declares
// (PartAxis): attention heads, channels of an MLP, tokens of the vocabulary; of the matrices of experts it has those of
// successive experts; norms, routers and other weights are whole on all ranks. load_weights() loads the parts. Programs
// are traced from the whole model and then divided (passes/tensor_parallel.h). The parts keep the checkpoint's names
// and know their place there (PartBox). A vocabulary that the ranks do not divide stays whole, with a notice.
class TensorParallelModel final : public WrappedModel {
 public:
  // rows: sequence_parallel, TensorDivision::rows. Throws Error that names tensor_parallel_size and what the ranks do
  // not divide.
  TensorParallelModel(std::unique_ptr<Model> whole, int rank, int ranks, bool rows = false);

  const Model& whole() const override { return base(); }
  Program adapted(Program program, const TraceUse& use) const override;

 private:
  TensorDivision division_;
};

// Returns what a rank of a tensor group has of a weight: some of its rows or columns, or all of it.
[[nodiscard]] WeightSpec part_spec(const WeightSpec& whole, int rank, int ranks);
// Returns true if a rank has some elements of the weight only.
[[nodiscard]] bool is_divided(const WeightSpec& spec);

// Returns the bytes of this rank's part of a weight. index: of the weight in model.weights(); weight: the store of the
// whole weight, under its name.
[[nodiscard]] std::vector<std::byte> part_of(const Model& model, std::size_t index, const TensorStore& weight);
// Copy the elements of a rank's part from the whole weight, and to it; rows that belong to no part stay. `whole` is the
// spec of the same weight in Model::whole(); size: bytes of an element.
void take_part(const WeightSpec& part, const WeightSpec& whole, std::size_t size, std::span<const std::byte> from,
               std::span<std::byte> to);
void put_part(const WeightSpec& part, const WeightSpec& whole, std::size_t size, std::span<const std::byte> from,
              std::span<std::byte> to);

}  // namespace hone
