// Assembles the heads of multi-head latent attention (MLA; DeepSeek-V2, 2024, section 2.1) into the packed rows that
// attention reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct LatentHeadsIn {
  enum : std::size_t { query, kv, rope_key };
};
struct LatentHeadsBackwardOut {
  enum : std::size_t { dquery, dkv, drope_key };
};

// Sizes of the heads. A query or key head has nope_dim elements without rotary embedding, then rope_dim rotated ones.
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

// Returns qkv [rows, 3 heads x head_dim], with head_dim = nope_dim + rope_dim, for operands of one dtype:
//   query     [rows, heads x head_dim]: the query heads, copied
//   kv        [rows, heads x (nope_dim + value_dim)]: of each head the key's first part, then the value
//   rope_key  [rows, rope_dim]: the rotated part of the key, which all heads share
// Values are padded with zeros to head_dim. Rows past the count are zero. The gradient of rope_key sums over the heads
// in ascending order in f32 (f64 for f64) and is rounded once. Throws Error if value_dim exceeds head_dim.
[[nodiscard]] Tensor latent_heads(Tensor query, Tensor kv, Tensor rope_key, const LatentHeadsAttributes& attributes);

}  // namespace hone
