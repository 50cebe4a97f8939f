#include "ops/lora/division.h"

#include <vector>

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/linear/linear.h"
#include "ops/lora/lora.h"
#include "ops/rank_rows/rank_rows.h"
#include "ops/ranks/ranks.h"

namespace hone {
namespace {

// Returns the attributes for a rank's rows of a block, of which each part is divided.
LoraAttributes of_rank(const ShardBuilder& builder, const Node& node) {
  LoraAttributes attributes = node.attributes.as<LoraAttributes>();
  const LoraParts whole = lora_parts_from_text(attributes.parts);
  LoraParts own;
  for (int part = 0; part < whole.count; ++part) {
    const auto at = static_cast<std::size_t>(part);
    own.add(whole.first.at(at) / builder.ranks(), whole.rows.at(at) / builder.ranks());
  }
  attributes.parts = to_text(own);
  return attributes;
}

}  // namespace

void divide_lora_spread(ShardBuilder& builder, const Op& op, const Node& node) {
  if (builder.division(0) != kDividedRows) return op.Op::shard(builder, node);
  shard_alike(builder, of_rank(builder, node), kDividedRows);
}

void divide_lora_linear(ShardBuilder& builder, const Op& op, const Node& node) {
  const auto has = [&](std::size_t index, std::int64_t division) { return builder.division(index) == division; };
  const bool all_of_h = has(LoraLinearIn::h, kWhole);
  if (has(LoraLinearIn::weight, kDividedRows) && has(LoraLinearIn::up, kDividedRows) && has(LoraLinearIn::x, kWhole) &&
      all_of_h) {
    const std::vector<Tensor> inputs{builder.entered(LoraLinearIn::x), builder.input(LoraLinearIn::weight),
                                     builder.input(LoraLinearIn::bias), builder.entered(LoraLinearIn::h),
                                     builder.input(LoraLinearIn::up)};
    return builder.set_output(0, builder.append(node.attributes, inputs)[0], kDividedColumns);
  }
  if (!has(LoraLinearIn::weight, kDividedColumns) || !has(LoraLinearIn::x, kDividedColumns) ||
      !has(LoraLinearIn::up, kWhole) || !has(LoraLinearIn::bias, kWhole) || !all_of_h) {
    return op.Op::shard(builder, node);
  }
  const Tensor addend = linear(builder.input(LoraLinearIn::x), builder.input(LoraLinearIn::weight));
  const Tensor bias = builder.input(LoraLinearIn::bias);
  if (builder.has_rows(LoraLinearIn::h)) {
    const Tensor sum = sum_rank_rows(addend, builder.ranks(), bias ? enter_ranks(bias) : bias);
    const Tensor more = linear(builder.rows(LoraLinearIn::h), builder.entered(LoraLinearIn::up));
    return builder.set_rows(0, add(sum, more));
  }
  // All ranks compute the same of h.
  const Tensor more = linear(builder.input(LoraLinearIn::h), builder.input(LoraLinearIn::up));
  builder.set_output(0, add(sum_ranks(addend, bias), more), kWhole);
}

void divide_lora_bias(ShardBuilder& builder, const Op& op, const Node& node) {
  if (builder.division(LoraBiasIn::trained) != kDividedRows || builder.division(LoraBiasIn::frozen) != kDividedRows) {
    return op.Op::shard(builder, node);
  }
  shard_alike(builder, of_rank(builder, node), kDividedRows);
}

void divide_dora_norm(ShardBuilder& builder, const Op& op, const Node& node) {
  const std::int64_t division = builder.division(LoraDoraNormIn::weight);
  if (division == kWhole || builder.division(LoraDoraNormIn::delta) != division) return op.Op::shard(builder, node);
  if (division == kDividedRows) return shard_alike(builder, node.attributes, kDividedRows);
  const Tensor norms = dora_norm_part(builder.input(LoraDoraNormIn::weight), builder.input(LoraDoraNormIn::delta));
  builder.set_output(0, norms, kWhole);
}

void divide_dora_scale(ShardBuilder& builder, const Op& op, const Node& node) {
  if (builder.division(LoraDoraScaleIn::z) != kDividedColumns ||
      builder.division(LoraDoraScaleIn::norm) != kDividedRows) {
    return op.Op::shard(builder, node);
  }
  shard_alike(builder, of_rank(builder, node), kDividedColumns);
}

void divide_join_columns(ShardBuilder& builder, const Op& op, const Node& node) {
  if (builder.division(LoraJoinIn::a) == kDividedRows && builder.division(LoraJoinIn::b) == kDividedRows) {
    return shard_alike(builder, node.attributes, kDividedRows);
  }
  if (!shard_rows(builder, node)) op.Op::shard(builder, node);
}

}  // namespace hone
