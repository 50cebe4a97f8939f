// Writes the keys and values of new tokens to the pages of the key-value cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct KvAppendIn {
  enum : std::size_t { qkv, k_cache, v_cache, slots, k_scales, v_scales };
};
struct KvAppendOut {
  enum : std::size_t { k_cache, v_cache, k_scales, v_scales };
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

// The pages of a layer.
struct KvPages {
  Tensor keys, values;              // [num_blocks, block_size, kv_heads x head_dim]
  Tensor key_scales, value_scales;  // of FP8 pages, otherwise invalid: u8 [num_blocks, kv_heads x block_size]
};

// Copies the keys and values of each row to its slot and returns the pages, written in place.
//   qkv    [rows, (heads + 2 kv_heads) head_dim]: query heads, key heads, value heads
//   pages  of the dtype of qkv, or in FP8 (u8), to which heads of bf16 or f32 are rounded (core/float8_head.h). The
//          scale of a head is at head x block_size + offset in the page, so that those of a page and head are
//          contiguous
//   slots  i32 [rows]: page x block_size + offset in the page; no two are the same
// Rows past the count write nothing. There is no gradient. Throws Error if the types do not fit.
[[nodiscard]] KvPages kv_append(Tensor qkv, const KvPages& pages, Tensor slots, const KvAppendAttributes& attributes);
// The same for pages of the dtype of qkv.
[[nodiscard]] std::pair<Tensor, Tensor> kv_append(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor slots,
                                                  const KvAppendAttributes& attributes);

// Types of pages, of which the scales are null if the operation has none.
struct KvPageTypes {
  const Type& keys;
  const Type& values;
  const Type* key_scales;
  const Type* value_scales;

  // Reads the types of an operation's inputs; `keys` and `scales` are the indices of the first of two.
  KvPageTypes(InputTypes inputs, std::size_t first, std::size_t scales, std::string_view op);
  // Throws Error unless they are pages of kv_heads heads of head_dim, of `dtype` without scales or u8 with scales.
  void check(DType dtype, std::int64_t kv_heads, std::int64_t head_dim, std::string_view op) const;
};

}  // namespace hone
