// Rotary position embedding of new tokens whose keys and values go to the pages of the key-value cache: rope and
// kv_append in one pass over qkv. The generation program has the two operations; the fusion pass replaces them by this
// one, to the same bits.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "ops/kv_append/kv_append.h"
#include "ops/rope/rope.h"

namespace hone {

// Indices of the inputs and outputs.
struct RopeAppendIn {
  enum : std::size_t { qkv, table, k_cache, v_cache, slots, k_scales, v_scales };
};
struct RopeAppendOut {
  enum : std::size_t { qkv, k_cache, v_cache, k_scales, v_scales };
};

// Returns rope(qkv), all of whose query and key heads are rotated by `table`, and the pages, to which the rotated keys
// and the values of each row are written in place as by kv_append. There is no gradient. Throws Error if the types do
// not fit.
[[nodiscard]] std::pair<Tensor, KvPages> rope_append(Tensor qkv, Tensor table, const KvPages& pages, Tensor slots,
                                                     const KvAppendAttributes& attributes);
// The same for pages of the dtype of qkv.
[[nodiscard]] std::tuple<Tensor, Tensor, Tensor> rope_append(Tensor qkv, Tensor table, Tensor k_cache, Tensor v_cache,
                                                             Tensor slots, const KvAppendAttributes& attributes);

// The rotation's part of the attributes.
[[nodiscard]] inline RopeAttributes rope_of(const KvAppendAttributes& attributes) {
  return {.heads = attributes.heads + attributes.kv_heads, .head_dim = attributes.head_dim};
}

}  // namespace hone
