// Heads of multi-head latent attention (DeepSeek-V2, 2024, section 2.1) as the packed rows that attention reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct LatentHeadsIn {
  enum : std::size_t { query, kv, rope_key };
};
struct LatentHeadsBackwardOut {
  enum : std::size_t { dquery, dkv, drope_key };
};

// A head of queries or keys has nope_dim elements that no rotation touches, then rope_dim rotated ones.
struct LatentHeadsAttributes {
  std::int64_t heads = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("nope_dim", nope_dim);
    v("rope_dim", rope_dim);
    v("value_dim", value_dim);
  }

  [[nodiscard]] std::int64_t head_dim() const { return nope_dim + rope_dim; }
  [[nodiscard]] std::int64_t query_width() const { return heads * head_dim(); }
  [[nodiscard]] std::int64_t kv_width() const { return heads * (nope_dim + value_dim); }
};

// query [rows, heads x (nope_dim + rope_dim)], kv [rows, heads x (nope_dim + value_dim)] with each head's key part
// before its value, rope_key [rows, rope_dim], of one dtype -> qkv [rows, 3 heads x head_dim] with head_dim = nope_dim
// + rope_dim: the query heads as they are, the key heads each of its part of kv and the rope key of all heads, the
// value heads each with zeros behind it. Rows past the count are zero. The gradient of rope_key sums over the heads in
// ascending order in f32 (f64) and is rounded once. Throws Error where value_dim exceeds head_dim.
[[nodiscard]] Tensor latent_heads(Tensor query, Tensor kv, Tensor rope_key, const LatentHeadsAttributes& attributes);

}  // namespace hone
