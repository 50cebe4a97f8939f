// Causal attention over sequences of different lengths, with grouped queries.
//
// Query head h reads key and value head h / (num_heads / num_kv_heads). Keys are taken in tiles of 64, counted from the
// sequence's start, with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): scores are fma chains over
// head_dim, a tile's weights are summed in sixteen lanes (vector_math.h), the output is an fma chain over the keys in
// order. What a row gets depends on nothing but its query and the keys and values up to it: the same bits whether a
// sequence is computed whole, in chunks or token by token, from rows or from pages, on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/vector_math.h"
#include "core/dtype.h"

namespace hone {

struct AttentionShape {
  std::int64_t num_heads = 0, num_kv_heads = 0;  // the second divides the first
  std::int64_t head_dim = 0;                     // a multiple of 8, at most 256
  double scale = 1.0;                            // of the scores
};

// Throws Error if the shape is not supported.
void check_attention_shape(const AttentionShape& shape);

// Rows [tokens, heads, head_dim]; `stride` elements from a token to the next, so that they may be slices of one buffer.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

// The queries of all sequences, one after the other: those of sequence s are the tokens [cu_seqlens[s],
// cu_seqlens[s + 1]). Outputs of the tokens from cu_seqlens.back() up to `capacity` are zero.
template <class T>
struct AttentionQueries {
  AttentionShape shape;
  std::span<const std::int32_t> cu_seqlens;  // [sequences + 1], from 0
  std::int64_t capacity = 0;
  HeadRows<const T> q;
  HeadRows<T> o;
  Accumulator<T>* lse = nullptr;   // [capacity, num_heads]: log of the sum of e^score
  std::span<std::byte> workspace;  // attention_workspace_bytes<T>(...); a smaller one costs threads, down to one
};

// Every sequence attends to itself; k and v have the tokens of q.
template <class T>
struct AttentionForwardArgs {
  AttentionQueries<T> queries;
  HeadRows<const T> k, v;
};

// Keys and values lie in pages: position p of sequence s is row p % block_size of page
// block_table[s * max_blocks + p / block_size]. The queries of sequence s are its positions from start[s] on; theirs
// and all earlier keys and values are in the pages already.
template <class T>
struct PagedAttentionArgs {
  AttentionQueries<T> queries;
  const T* k_cache = nullptr;  // [num_blocks, block_size, num_kv_heads, head_dim]
  const T* v_cache = nullptr;
  std::int64_t num_blocks = 0, block_size = 16;
  std::span<const std::int32_t> block_table;  // [sequences, max_blocks]
  std::int64_t max_blocks = 0;
  std::span<const std::int32_t> start;  // [sequences]
};

// From the forward pass's inputs and outputs and the gradient of o. Gradients may not overlap inputs; those of tokens
// past the end are zero. Each is summed in one order.
template <class T>
struct AttentionBackwardArgs {
  AttentionShape shape;
  std::span<const std::int32_t> cu_seqlens;
  std::int64_t capacity = 0;
  HeadRows<const T> q, k, v, o, grad_o;
  const Accumulator<T>* lse = nullptr;
  HeadRows<T> grad_q, grad_k, grad_v;
  std::span<std::byte> workspace;  // attention_backward_workspace_bytes<T>(...); as above
};

// For T = float, BFloat16 and double; sums are f32 (f64 for double).
template <class T>
void attention_forward(const AttentionForwardArgs<T>& args);
template <class T>
void paged_attention_forward(const PagedAttentionArgs<T>& args);
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args);

template <class T>
[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionShape& shape, int threads);
// Grows with the longest sequence: 2 * head_dim sums a token and thread.
template <class T>
[[nodiscard]] std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, std::int64_t longest_sequence,
                                                             int threads);

}  // namespace hone
