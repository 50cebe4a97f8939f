// Rules of the operations of adapters for a rank of a tensor group (program/shard_builder.h). Where the rows of a
// layer's weight are divided, so are those of B, magnitudes and biases, and A is whole; where its columns are divided,
// so are those of A, and B is whole. Ranks sum x W^T, x A^T and the squares of rows where columns are divided.
#pragma once

#include "program/op.h"
#include "program/shard_builder.h"

namespace hone {

void divide_lora_spread(ShardBuilder& builder, const Op& op, const Node& node);
void divide_lora_linear(ShardBuilder& builder, const Op& op, const Node& node);
void divide_lora_bias(ShardBuilder& builder, const Op& op, const Node& node);
void divide_dora_norm(ShardBuilder& builder, const Op& op, const Node& node);
void divide_dora_scale(ShardBuilder& builder, const Op& op, const Node& node);
void divide_join_columns(ShardBuilder& builder, const Op& op, const Node& node);

}  // namespace hone
