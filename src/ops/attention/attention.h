// Causal softmax attention over sequences laid end to end, with grouped query heads (GQA, Ainslie et al., 2023): query
// head h reads key and value head h / (heads / kv_heads).
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
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
  double scale = 1.0;          // factor of the scores
  std::int64_t value_dim = 0;  // elements of a value head; the others, up to head_dim, are zeros. 0: head_dim

  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("head_dim", head_dim);
    v("scale", scale);
    v("value_dim", value_dim);
  }
};

// Returns o [rows, heads x head_dim] for
//   qkv         [rows, (heads + 2 kv_heads) head_dim]: query heads, key heads, value heads
//   cu_seqlens  i32 [sequences + 1]: the first row of each sequence, then the end of the last one, which the entries of
//               absent sequences repeat
// If a value head has zeros from column value_dim on, so has a head of o, and the gradients of these columns are
// neither read nor defined: fast kernels do not compute them. A row sees its sequence up to itself and depends bitwise
// on nothing else (backend/cpu/attention.h). Rows outside all sequences are zero, and so are their gradients. Throws
// Error if the shapes do not fit.
[[nodiscard]] Tensor attention(Tensor qkv, Tensor cu_seqlens, const AttentionAttributes& attributes);

}  // namespace hone
