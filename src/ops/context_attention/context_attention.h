// Causal softmax attention of the tokens that one rank of a context group has to all tokens of their documents: the
// form of ops/attention for packed documents whose tokens are divided over processes.
#pragma once

#include <cstddef>

#include "ops/attention/attention.h"
#include "program/context_builder.h"

namespace hone {

// Indices of the inputs and outputs. `rows` and piece_bounds to cu_seqlens are those of ContextInputs.
struct ContextAttentionIn {
  enum : std::size_t { qkv, keys, rows, piece_bounds, piece_starts, piece_keys, document_pieces, cu_seqlens };
};
struct ContextAttentionBackwardIn {
  enum : std::size_t { qkv, keys, piece_bounds, piece_starts, piece_keys, document_pieces, cu_seqlens, grad_o, o, lse };
};
struct ContextAttentionBackwardOut {
  enum : std::size_t { qkv, keys };
};

// Returns o [capacity, heads x head_dim] for this rank's rows qkv [capacity, (heads + 2 kv_heads) head_dim], counted by
// tokens, of which only the query heads are read. The key and value heads of all ranks are gathered
// (ops/context_rows), in the backward pass again, which takes less memory than keeping them. A row has the bits of
// attention() over the whole documents on the same kind of device, and so has the gradient of its queries on CPUs and,
// in bf16 with heads that the backward kernel of Hopper takes, on Hopper. The gradients of keys and values are summed
// over the ranks, in their order.
[[nodiscard]] Tensor context_attention(Tensor qkv, const ContextInputs& inputs, const AttentionAttributes& attributes);

}  // namespace hone
