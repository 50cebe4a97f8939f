// Causal attention of all heads to the latent rows of a paged KV cache (ops/latent_cache), the absorbed form of
// multi-head latent attention (DeepSeek-V2, 2024, section 2.1): a row [latent, rope_key] is the key of its position for
// every head, and its latent part the value. Queries and results are projected by ops/latent_projection.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct LatentAttentionIn {
  enum : std::size_t { query, cache, block_table, cu_seqlens, starts };
};

struct LatentAttentionAttributes {
  std::int64_t heads = 0;
  std::int64_t rank = 0;  // elements of a latent row, and of a result
  double scale = 1.0;     // factor of the scores

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("rank", rank);
    v("scale", scale);
  }
};

// Returns [rows, heads x rank] for
//   query        [rows, heads x (rank + rope_dim)]
//   cache        [num_blocks, block_size, rank + rope_dim] of the same dtype
//   block_table  i32 [sequences, max_blocks]: the page of each block_size positions of a sequence
//   cu_seqlens   i32 [sequences + 1]: the first row of each sequence
//   starts       i32 [sequences]: the position of a sequence's first row
// block_table and starts are counted by sequences. Row i of a sequence sees positions 0 .. start + i, whose latent rows
// latent_cache_append has written; rows of the pages after them may hold anything. A row's result depends on its query
// and on the rows it sees only: neither on how a sequence is divided into chunks nor on other sequences. There is no
// gradient.
[[nodiscard]] Tensor latent_attention(Tensor query, Tensor cache, Tensor block_table, Tensor cu_seqlens, Tensor starts,
                                      const LatentAttentionAttributes& attributes);

}  // namespace hone
