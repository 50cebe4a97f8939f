// Writes the keys and values of new tokens to the pages of the key-value cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct KvAppendIn {
  enum : std::size_t { qkv, k_cache, v_cache, slots };
};
struct KvAppendOut {
  enum : std::size_t { k_cache, v_cache };
};

struct KvAppendAttributes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("head_dim", head_dim);
  }
};

// Copies the keys and values of each row to its slot and returns both caches, written in place.
//   qkv               [rows, (heads + 2 kv_heads) head_dim]: query heads, key heads, value heads
//   k_cache, v_cache  [num_blocks, block_size, kv_heads x head_dim] of the same dtype
//   slots             i32 [rows]: page x block_size + offset in the page; no two are the same
// Rows past the count write nothing. There is no gradient. Throws Error if the types do not fit.
[[nodiscard]] std::pair<Tensor, Tensor> kv_append(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor slots,
                                                  const KvAppendAttributes& attributes);

}  // namespace hone
