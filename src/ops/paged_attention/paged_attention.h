// Attention whose keys and values lie in pages (Kwon et al., "PagedAttention", 2023): prefill, chunks of it, decoding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct PagedAttentionIn {
  enum : std::size_t { qkv, k_cache, v_cache, block_table, cu_seqlens, starts };
};
struct PagedAttentionOut {
  enum : std::size_t { o, lse };
};

struct PagedAttentionAttributes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double scale = 1.0;           // of the scores
  std::int64_t block_size = 0;  // positions a page

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("head_dim", head_dim);
    v("scale", scale);
    v("block_size", block_size);
  }
};

// qkv [rows, (heads + 2 kv_heads) head_dim], of which the query heads are read; k_cache and v_cache [num_blocks,
// block_size, kv_heads x head_dim]; block_table i32 [sequences, max_blocks]: the page of each block_size positions of a
// sequence; cu_seqlens i32 [sequences + 1]: where its rows start; starts i32 [sequences]: the position of its first
// row. block_table and starts are counted by sequences. -> o [rows, heads x head_dim]. Row i of a sequence sees its
// positions 0 .. start + i, in the pages already (kv_append). Bitwise equal to attention() over the sequence. There is
// no gradient.
[[nodiscard]] Tensor paged_attention(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor cu_seqlens,
                                     Tensor starts, const PagedAttentionAttributes& attributes);

}  // namespace hone
