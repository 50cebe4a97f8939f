#include "train/shards.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
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

}  // namespace

UpdateShards::UpdateShards(const Model& model, const OptimizerOptions& options, int ranks) : model_(&model) {
  if (options.divided_gradients && ranks > 1) {
    cut_each(options, ranks);
  } else {
    cut_in_order(options, ranks);
  }
}

void UpdateShards::cut_in_order(const OptimizerOptions& options, int ranks) {
  const std::vector<WeightSpec>& specs = model_->weights();
  std::int64_t total = 0;
  for (const WeightSpec& spec : specs) total += spec.trainable ? elements_of(spec) : 0;
  for (int rank = 0; rank <= ranks; ++rank) {
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(total) * rank / ranks);
    std::vector<std::int64_t>& cuts = cuts_.emplace_back();
    std::int64_t start = 0;
    for (const WeightSpec& spec : specs) {
      const std::int64_t place = rank == ranks ? total - start : wanted - start;
      cuts.push_back(spec.trainable ? cut_near(spec, place, is_divisible(spec, options)) : 0);
      start += spec.trainable ? elements_of(spec) : 0;
    }
  }
}

void UpdateShards::cut_each(const OptimizerOptions& options, int ranks) {
  const std::vector<WeightSpec>& specs = model_->weights();
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks), 0);  // elements of each rank so far
  cuts_.assign(static_cast<std::size_t>(ranks) + 1, std::vector<std::int64_t>(specs.size(), 0));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i];
    if (!spec.trainable) continue;
    const std::int64_t rows = spec.shape[0];
    const std::int64_t unit = rows_per_cut(spec, kNormBlock);
    const bool divides = is_divisible(spec, options) && rows / unit >= ranks;
    const auto owner = std::ranges::min_element(held) - held.begin();
    for (int rank = 1; rank <= ranks; ++rank) {
      std::int64_t& cut = cuts_[static_cast<std::size_t>(rank)][i];
      cut = rank == ranks ? rows : divides ? (rows * rank / ranks + unit / 2) / unit * unit : rank <= owner ? 0 : rows;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      held[static_cast<std::size_t>(rank)] += rows_of(i, rank).count * row_elements(spec);
    }
  }
}

RowRange UpdateShards::rows_of(std::size_t index, int rank) const {
  const std::int64_t first = cuts_[static_cast<std::size_t>(rank)][index];
  return {first, cuts_[static_cast<std::size_t>(rank) + 1][index] - first};
}

std::vector<std::vector<ByteRange>> UpdateShards::gathered(const TensorStore& weights) const {
  std::vector<std::vector<ByteRange>> calls;
  if (weights.tensors().empty()) return calls;
  const std::byte* const base = weights.data(weights.tensors().front().name);
  const std::vector<WeightSpec>& specs = model_->weights();
  for (int rank = 0; rank < ranks(); ++rank) {
    std::vector<ByteRange> ranges;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const RowRange rows = rows_of(i, rank);
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
      calls.resize(ranges.size(), std::vector<ByteRange>(static_cast<std::size_t>(ranks())));
    for (std::size_t call = 0; call < ranges.size(); ++call) calls[call][static_cast<std::size_t>(rank)] = ranges[call];
  }
  return calls;
}

std::shared_ptr<const WeightShares> shares_of_programs(const Model& model, const OptimizerOptions& options) {
  if (options.ranks == 1 || !options.divided_gradients) return nullptr;
  const UpdateShards shards(model, options, options.ranks);
  auto shares = std::make_shared<WeightShares>(
      WeightShares{.rank = options.rank, .weights = options.divided_weights, .cuts = {}});
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    if (!spec.trainable) continue;
    std::vector<std::int64_t>& cuts = shares->cuts[spec.name];
    for (int rank = 0; rank < options.ranks; ++rank) cuts.push_back(shards.rows_of(i, rank).first);
    cuts.push_back(spec.shape[0]);
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
