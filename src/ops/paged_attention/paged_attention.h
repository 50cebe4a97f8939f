// Causal attention over a paged key-value cache (Kwon et al., "PagedAttention", 2023), for prefill, chunked prefill and
// decoding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kv_append/kv_append.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct PagedAttentionIn {
  enum : std::size_t { qkv, k_cache, v_cache, block_table, cu_seqlens, starts, k_scales, v_scales };
};
struct PagedAttentionOut {
  enum : std::size_t { o, lse };
};

struct PagedAttentionAttributes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double scale = 1.0;           // factor of the scores
  std::int64_t block_size = 0;  // positions in a page
  std::int64_t value_dim = 0;   // as in AttentionAttributes
  bool computed = false;        // keys and values of all positions are computed in the same run of the program

  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("head_dim", head_dim);
    v("scale", scale);
    v("block_size", block_size);
    v("value_dim", value_dim);
    v("computed", computed);
  }
};

// Returns o [rows, heads x head_dim] for
//   qkv               [rows, (heads + 2 kv_heads) head_dim], of which only the query heads are read, or [rows, heads x
//                     head_dim]
//   pages             keys and values [num_blocks, block_size, kv_heads x head_dim] of the dtype of qkv, or in FP8 with
//                     their scales
//   block_table       i32 [sequences, max_blocks]: the page of each block_size positions of a sequence
//   cu_seqlens        i32 [sequences + 1]: the first row of each sequence
//   starts            i32 [sequences]: the position of a sequence's first row
// block_table and starts are counted by sequences. Row i of a sequence sees positions 0 .. start + i, whose keys and
// values kv_append has written: those below `start` in earlier runs of the program unless `computed` is set, as a
// kernel may read them before the nodes before this one have ended. The result is bitwise that of attention() over the
// sequence, with FP8 pages over the keys and values that its heads are rounded to. There is no gradient.
[[nodiscard]] Tensor paged_attention(Tensor qkv, const KvPages& pages, Tensor block_table, Tensor cu_seqlens,
                                     Tensor starts, const PagedAttentionAttributes& attributes);
// The same for pages of the dtype of qkv.
[[nodiscard]] Tensor paged_attention(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor cu_seqlens,
                                     Tensor starts, const PagedAttentionAttributes& attributes);

}  // namespace hone
