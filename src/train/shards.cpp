#include "train/shards.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "model/weight_layout.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "train/registry.h"

namespace hone {
namespace {

bool is_divisible(const WeightSpec& spec, const OptimizerOptions& options) {
  const bool is_matrix_of_muon = options.rule == UpdateRule::kMuon && spec.kind.traits().muon == MuonUse::kMatrices;
  return !is_matrix_of_muon && update_rule_registry().find(spec.kind) == nullptr;
}

// Returns the row at which a weight is cut near its element `wanted`.
std::int64_t cut_near(const WeightSpec& spec, std::int64_t wanted, bool divisible) {
  const std::int64_t row = row_elements(spec);
  const std::int64_t rows = spec.shape[0];
  if (wanted <= 0) return 0;
  if (wanted >= rows * row) return rows;
  const std::int64_t unit = divisible ? kStateBlock / std::gcd(row, kStateBlock) : rows;
  return std::min(rows, (wanted + unit * row / 2) / (unit * row) * unit);
}

}  // namespace

UpdateShards::UpdateShards(const Model& model, const OptimizerOptions& options, int ranks) : model_(&model) {
  const std::vector<WeightSpec>& specs = model.weights();
  std::int64_t total = 0;
  for (const WeightSpec& spec : specs) total += spec.trainable ? spec.shape[0] * row_elements(spec) : 0;
  for (int rank = 0; rank <= ranks; ++rank) {
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(total) * rank / ranks);
    std::vector<std::int64_t>& cuts = cuts_.emplace_back();
    std::int64_t start = 0;
    for (const WeightSpec& spec : specs) {
      const std::int64_t place = rank == ranks ? total - start : wanted - start;
      cuts.push_back(spec.trainable ? cut_near(spec, place, is_divisible(spec, options)) : 0);
      start += spec.trainable ? spec.shape[0] * row_elements(spec) : 0;
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
