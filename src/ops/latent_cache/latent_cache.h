// A key-value cache of latent rows: multi-head latent attention (DeepSeek-V2, 2024, section 2.1) computes the keys and
// values of all heads from one row per token, [latent, rope_key], and the pages hold that row in place of them.
//
// A step expands the pages that its sequences use, with the operations that training has, so that the keys and values
// have the same bits:
//
//   cache = latent_cache_append(latent, rope_key, cache, slots)        rows of the new tokens
//   latent, rope_key = latent_cache_rows(cache, pages)                 all rows of the pages in use
//   keys, values = latent_cache_pages(linear(latent, up), rope_key)    pages for paged_attention
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/latent_heads/latent_heads.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct LatentAppendIn {
  enum : std::size_t { latent, rope_key, cache, slots };
};
struct LatentRowsIn {
  enum : std::size_t { cache, pages };
};
struct LatentRowsOut {
  enum : std::size_t { latent, rope_key };
};
struct LatentPagesIn {
  enum : std::size_t { kv, rope_key };
};
struct LatentPagesOut {
  enum : std::size_t { keys, values };
};

struct LatentRowsAttributes {
  std::int64_t rope_dim = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("rope_dim", rope_dim);
  }
};

struct LatentPagesAttributes {
  LatentHeadsAttributes heads;
  std::int64_t block_size = 0;  // rows of a page

  template <class Visitor>
  void fields(Visitor& v) {
    heads.fields(v);
    v("block_size", block_size);
  }
};

// Copies latent [rows, rank] and rope_key [rows, rope_dim] of each row to its slot of cache [num_blocks, block_size,
// rank + rope_dim] and returns the cache, written in place. slots is i32 [rows]: page x block_size + offset in the
// page; no two are the same. Rows past the count write nothing. There is no gradient, as in the operations below.
[[nodiscard]] Tensor latent_cache_append(Tensor latent, Tensor rope_key, Tensor cache, Tensor slots);

// Returns latent [n x block_size, rank] and rope_key [n x block_size, rope_dim]: the rows of pages[0], then those of
// pages[1] and so on. pages is i32 [n]; its count times block_size is the count of the outputs.
[[nodiscard]] std::pair<Tensor, Tensor> latent_cache_rows(Tensor cache, Tensor pages, std::int64_t rope_dim);

// Returns keys and values [n, block_size, heads x head_dim], as latent_heads() has them in its rows, from kv [n x
// block_size, heads x (nope_dim + value_dim)] and rope_key [n x block_size, rope_dim].
[[nodiscard]] std::pair<Tensor, Tensor> latent_cache_pages(Tensor kv, Tensor rope_key,
                                                           const LatentPagesAttributes& attributes);

}  // namespace hone
