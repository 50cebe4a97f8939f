#include "train/shards.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "model/stage_model.h"
#include "model/weight_layout.h"
#include "model/weights.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "train/registry.h"

namespace hone {
namespace {

bool is_divisible(const WeightSpec& spec, const OptimizerOptions& options) {
  const bool is_matrix_of_muon = options.rule == UpdateRule::kMuon && spec.kind.traits().muon == MuonUse::kMatrices;
  return !is_matrix_of_muon && options.rule != UpdateRule::kSgd && update_rule_registry().find(spec.kind) == nullptr;
}

std::int64_t elements_of(const WeightSpec& spec) { return spec.shape[0] * row_elements(spec); }

// Returns the least rows of a weight that begin at multiples of `block` elements.
std::int64_t rows_per_cut(const WeightSpec& spec, std::int64_t block) {
  return block / std::gcd(row_elements(spec), block);
}

// Returns the row at which a weight is cut near its element `wanted`.
std::int64_t cut_near(const WeightSpec& spec, std::int64_t wanted, bool divisible) {
  const std::int64_t row = row_elements(spec);
  const std::int64_t rows = spec.shape[0];
  if (wanted <= 0) return 0;
  if (wanted >= rows * row) return rows;
  const std::int64_t unit = divisible ? rows_per_cut(spec, kStateBlock) : rows;
  return std::min(rows, (wanted + unit * row / 2) / (unit * row) * unit);
}

// Returns true if two stages of a pipeline have a weight of the model.
bool is_shared(const Model& model, const std::string& weight) {
  return model.stage() != nullptr && std::ranges::count(model.stage()->shared(), weight) > 0;
}

}  // namespace

UpdateShards::UpdateShards(const Model& model, const OptimizerOptions& options, int ranks)
    : model_(&model),
      ranks_(ranks),
      divides_experts_(options.expert_ranks > 1),
      expert_members_(std::max(1, ranks / options.expert_ranks)),
      cuts_(model.weights().size()) {
  for (std::size_t i = 0; i < cuts_.size(); ++i) cuts_[i].assign(static_cast<std::size_t>(members(i)) + 1, 0);
  for (const bool experts : {false, true}) {
    if (options.divided_gradients && ranks > 1) {
      cut_each(options, experts);
    } else {
      cut_in_order(options, experts);
    }
  }
}

bool UpdateShards::is_expert(std::size_t index) const {
  return divides_experts_ && model_->weights()[index].kind == WeightKind::expert;
}

void UpdateShards::cut_in_order(const OptimizerOptions& options, bool experts) {
  const std::vector<WeightSpec>& specs = model_->weights();
  const int ranks = experts ? expert_members_ : ranks_;
  const auto is_cut = [&](std::size_t i) { return specs[i].trainable && is_expert(i) == experts; };
  std::int64_t total = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) total += is_cut(i) ? elements_of(specs[i]) : 0;
  for (int rank = 0; rank <= ranks; ++rank) {
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(total) * rank / ranks);
    std::int64_t start = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!is_cut(i)) continue;
      const std::int64_t place = rank == ranks ? total - start : wanted - start;
      cuts_[i][static_cast<std::size_t>(rank)] = cut_near(specs[i], place, is_divisible(specs[i], options));
      start += elements_of(specs[i]);
    }
  }
}

void UpdateShards::cut_each(const OptimizerOptions& options, bool experts) {
  const std::vector<WeightSpec>& specs = model_->weights();
  const int ranks = experts ? expert_members_ : ranks_;
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks), 0);  // elements of each rank so far
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i];
    if (!spec.trainable || is_expert(i) != experts) continue;
    // The ranks of both stages sum gradients of the same rows, so that no other weight may decide on them.
    HONE_ASSERT(!is_shared(*model_, spec.name) || std::ranges::count(held, 0) == ranks, spec.name, " is not cut first");
    const std::int64_t rows = spec.shape[0];
    const std::int64_t unit = rows_per_cut(spec, kNormBlock);
    const bool divides = is_divisible(spec, options) && rows / unit >= ranks;
    const auto owner = std::ranges::min_element(held) - held.begin();
    std::vector<std::int64_t>& cuts = cuts_[i];
    for (int rank = 1; rank <= ranks; ++rank) {
      cuts[static_cast<std::size_t>(rank)] = rank == ranks   ? rows
                                             : divides       ? (rows * rank / ranks + unit / 2) / unit * unit
                                             : rank <= owner ? 0
                                                             : rows;
    }
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      held[rank] += (cuts[rank + 1] - cuts[rank]) * row_elements(spec);
    }
  }
}

RowRange UpdateShards::rows_of(std::size_t index, int rank) const {
  const auto member = static_cast<std::size_t>(rank / (ranks_ / members(index)));
  const std::int64_t first = cuts_[index][member];
  return {first, cuts_[index][member + 1] - first};
}

std::vector<std::vector<ByteRange>> UpdateShards::gathered(const TensorStore& weights, bool experts) const {
  std::vector<std::vector<ByteRange>> calls;
  if (weights.tensors().empty()) return calls;
  const std::byte* const base = weights.data(weights.tensors().front().name);
  const std::vector<WeightSpec>& specs = model_->weights();
  const int ranks = experts ? expert_members_ : ranks_;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<ByteRange> ranges;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (is_expert(i) != experts) continue;
      const RowRange rows = rows_of(i, rank * (ranks_ / ranks));
      if (rows.count == 0) continue;
      const Type& type = weights.type(specs[i].name);
      const std::size_t row = type.bytes() / static_cast<std::size_t>(specs[i].shape[0]);
      const auto at = static_cast<std::size_t>(weights.data(specs[i].name) - base);
      const ByteRange range{at + static_cast<std::size_t>(rows.first) * row,
                            at + static_cast<std::size_t>(rows.first + rows.count) * row};
      // The bytes between two tensors, which align the second, belong to no rank.
      if (!ranges.empty() && range.begin == align_up(ranges.back().end) && rows.first == 0) {
        ranges.back().end = range.end;
      } else {
        ranges.push_back(range);
      }
    }
    if (calls.size() < ranges.size())
      calls.resize(ranges.size(), std::vector<ByteRange>(static_cast<std::size_t>(ranks)));
    for (std::size_t call = 0; call < ranges.size(); ++call) calls[call][static_cast<std::size_t>(rank)] = ranges[call];
  }
  return calls;
}

std::shared_ptr<const WeightShares> shares_of_programs(const Model& model, const OptimizerOptions& options) {
  if (options.ranks == 1 || !options.divided_gradients) return nullptr;
  const UpdateShards shards(model, options, options.ranks);
  auto shares = std::make_shared<WeightShares>(WeightShares{.rank = options.rank,
                                                            .expert_member = options.rank / options.expert_ranks,
                                                            .weights = options.divided_weights,
                                                            .cuts = {},
                                                            .experts = {}});
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    const int members = shards.members(i);
    if (!spec.trainable || members == 1) continue;
    std::vector<std::int64_t>& cuts = shares->cuts[spec.name];
    for (int m = 0; m < members; ++m) cuts.push_back(shards.rows_of(i, m * (options.ranks / members)).first);
    cuts.push_back(spec.shape[0]);
    if (shards.is_expert(i)) shares->experts.insert(spec.name);
  }
  return shares;
}

std::vector<NamedType> stored_weights(const Model& model, DType dtype, const OptimizerOptions& options) {
  std::vector<NamedType> types = weight_types(model, dtype);
  if (options.ranks == 1 || !options.divided_weights) return types;
  const UpdateShards shards(model, options, options.ranks);
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!model.weights()[i].trainable) continue;
    types[i].type = type_of_rows(types[i].type, types[i].type, shards.rows_of(i, options.rank));
  }
  return types;
}

Type type_of_rows(const Type& tensor, const Type& whole, RowRange rows) {
  const std::int64_t all = whole.shape[0].size;
  if (rows.count == all) return tensor;
  Type part = tensor;
  if (tensor.shape == whole.shape) {
    part.shape[0].size = rows.count;
    return part;
  }
  const std::int64_t row = whole.elements() / all;
  HONE_ASSERT(tensor.shape == Shape{scales_of(whole.elements())}, to_text(tensor), " is no state of ", to_text(whole));
  part.shape[0].size = scales_of((rows.first + rows.count) * row) - rows.first * row / kStateBlock;
  return part;
}

}  // namespace hone
