#include "model/expert_parallel_model.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "model/weight_layout.h"

namespace hone {
namespace {

constexpr const char* kExpertKey = "expert_parallel_size";

[[noreturn]] void refuse_experts(int ranks, const std::string& reason, std::string_view fix) {
  throw Error(kExpertKey, text_of("is ", ranks, ", but ", reason), fix);
}

// Throws Error unless every mixture can be divided. Of the experts of a layer `model` has those of a rank of a tensor
// group, if there is one.
void check_experts(const Model& model, int ranks) {
  constexpr std::string_view kWhole = "--expert_parallel_size 1";
  if (model.adapter() != nullptr) refuse_experts(ranks, "the model has an adapter", kWhole);
  std::int64_t tensor_ranks = 0;  // 0: there are no experts
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    if (model.weights()[i].kind != WeightKind::expert) continue;
    tensor_ranks = model.whole().weights()[i].shape[0] / model.weights()[i].shape[0];
  }
  if (tensor_ranks == 0) refuse_experts(ranks, "the model has no mixture of experts", kWhole);
  for (const WeightSpec& spec : model.weights()) {
    // A router has a row for each expert.
    if (spec.kind != WeightKind::router || spec.shape[0] % (tensor_ranks * ranks) == 0) continue;
    const std::string of_rank =
        tensor_ranks > 1 ? text_of(", of which a process of a tensor group has ", spec.shape[0] / tensor_ranks) : "";
    refuse_experts(ranks, text_of("a layer has ", spec.shape[0], " experts", of_rank), "a size that divides them");
  }
}

}  // namespace

ExpertParallelModel::ExpertParallelModel(std::unique_ptr<Model> base, int rank, int ranks)
    : WrappedModel(std::move(base)), division_{.ranks = ranks, .weights = {}} {
  check_experts(this->base(), ranks);
  for (WeightSpec& spec : specs_) {
    if (spec.kind == WeightKind::expert) division_.weights.insert(spec.name);
    spec = expert_spec(spec, rank, ranks);
  }
}

WeightSpec expert_spec(const WeightSpec& whole, int rank, int ranks) {
  if (whole.kind != WeightKind::expert) return whole;
  const std::int64_t rows = whole.shape[0] / ranks;
  HONE_ASSERT(rows * ranks == whole.shape[0], whole.name, " has ", whole.shape[0], " rows");
  WeightSpec spec = whole;
  spec.shape[0] = rows;
  spec.parts.clear();
  for (const WeightPart& part : whole.parts) {
    const std::int64_t row = part.row - rank * rows;
    if (row < 0 || row >= rows) continue;
    HONE_ASSERT(row + part.rows <= rows, part.name, " belongs to the experts of two ranks");
    WeightPart own = part;
    own.row = row;
    std::vector<std::int64_t> shape = part_shape(whole, part);
    own.box = PartBox{.offset = std::vector<std::int64_t>(shape.size(), 0), .whole = std::move(shape)};
    spec.parts.push_back(std::move(own));
  }
  return spec;
}

Program ExpertParallelModel::adapted(Program program, const TraceUse& use) const {
  return divide_experts(WrappedModel::adapted(std::move(program), use), division_);
}

}  // namespace hone
