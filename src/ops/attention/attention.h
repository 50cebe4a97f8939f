// Causal softmax attention over documents laid end to end, with grouped queries (Ainslie et al., 2023): query head h
// reads key and value head h / (heads / kv_heads).
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct AttentionIn {
  enum : std::size_t { qkv, cu_seqlens };
};
struct AttentionOut {
  enum : std::size_t { o, lse };
};
struct AttentionBackwardIn {
  enum : std::size_t { grad_o, qkv, o, lse, cu_seqlens };
};

struct AttentionAttributes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double scale = 1.0;  // of the scores

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("head_dim", head_dim);
    v("scale", scale);
  }
};

// qkv [rows, (heads + 2 kv_heads) head_dim]: query heads, key heads, value heads. cu_seqlens i32 [sequences + 1]: where
// each sequence starts, then the end of the last, which the entries of absent sequences repeat. -> o [rows, heads x
// head_dim]. A row sees its own sequence up to itself, and depends bitwise on nothing else (backend/cpu/attention.h).
// Rows outside all sequences are zero, and so are their gradients.
[[nodiscard]] Tensor attention(Tensor qkv, Tensor cu_seqlens, const AttentionAttributes& attributes);

}  // namespace hone
