// Causal attention on the CPU over packed sequences of different lengths, with grouped queries (GQA).
//
// Query head h reads key and value head h / (num_heads / num_kv_heads). Keys are processed in tiles of 64, counted from
// the start of the sequence, with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022). Each score is one
// fma chain over head_dim, the weights of a tile are summed in sixteen lanes (vector_math.h), and each output is one
// fma chain over the keys in order.
//
// The result of a row therefore depends only on its query and on the keys and values up to it. It is bitwise the same
// if the sequence is computed whole, in chunks or token by token, from rows or from pages, on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/vector_math.h"
#include "core/dtype.h"

namespace hone {

struct AttentionShape {
  std::int64_t num_heads = 0, num_kv_heads = 0;  // num_heads is a multiple of num_kv_heads
  std::int64_t head_dim = 0;                     // a multiple of 8, at most 256
  double scale = 1.0;                            // factor of the scores
  std::int64_t value_dim = 0;                    // elements of a value and of an output, for latent rows; 0: head_dim

  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};

// Throws Error if the shape is not supported.
void check_attention_shape(const AttentionShape& shape);
// The same for attention to latent rows.
void check_latent_shape(const AttentionShape& shape);

// Tensor [tokens, heads, head_dim] with `stride` elements from one token to the next, so that q, k and v can be slices
// of one buffer.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

// Queries and outputs of packed sequences: sequence s has the tokens [cu_seqlens[s], cu_seqlens[s + 1]). The outputs of
// the tokens from cu_seqlens.back() up to `capacity` are set to zero.
template <class T>
struct AttentionQueries {
  AttentionShape shape;
  std::span<const std::int32_t> cu_seqlens;  // [sequences + 1], from 0
  std::int64_t capacity = 0;
  HeadRows<const T> q;
  HeadRows<T> o;
  Accumulator<T>* lse = nullptr;   // [capacity, num_heads], output: log-sum-exp of the scores; null: none
  std::span<std::byte> workspace;  // attention_workspace_bytes<T>(...); a smaller one reduces the number of threads
};

// Documents of which queries have only pieces: each sequence of queries is one, from some position of its document on,
// and keys and values have separate rows for all tokens of the documents. Empty: each sequence is a whole document.
struct AttentionPieces {
  std::span<const std::int32_t> starts;     // [sequences]: position of a sequence's first query in its document
  std::span<const std::int32_t> key_rows;   // [sequences]: the first row of its document in k and v
  std::span<const std::int32_t> documents;  // [documents + 1]: the first row of each document in k and v
  std::span<const std::int32_t> of;         // [documents + 1]: the first sequence of each document
  std::int64_t key_capacity = 0;            // rows of k and v
};

// Attention without a cache: k and v have the tokens of q or, with `pieces`, of the documents.
template <class T>
struct AttentionForwardArgs {
  AttentionQueries<T> queries;
  HeadRows<const T> k, v;
  AttentionPieces pieces = {};
};

// Heads of keys or of values in FP8 pages (core/float8_head.h).
struct Fp8Heads {
  const std::uint8_t* bytes = nullptr;   // [num_blocks, block_size, num_kv_heads, head_dim]
  const std::uint8_t* scales = nullptr;  // [num_blocks, num_kv_heads, block_size]
};

// Attention to a paged KV cache: position p of sequence s is row p % block_size of page
// block_table[s * max_blocks + p / block_size]. The queries of sequence s are its positions from start[s] on. The pages
// must contain the keys and values of these and all earlier positions.
template <class T>
struct PagedAttentionArgs {
  AttentionQueries<T> queries;
  const T* k_cache = nullptr;  // [num_blocks, block_size, num_kv_heads, head_dim]
  const T* v_cache = nullptr;
  Fp8Heads fp8_keys, fp8_values;  // instead of k_cache and v_cache; not for double
  std::int64_t num_blocks = 0, block_size = 16;
  std::span<const std::int32_t> block_table;  // [sequences, max_blocks]
  std::int64_t max_blocks = 0;
  std::span<const std::int32_t> start;  // [sequences], position of the first query
};

// Attention of all heads to latent rows in pages: a row of head_dim elements is the one key of a position, and its
// first value_dim elements the value. num_kv_heads is 1, and head_dim may exceed 256. Otherwise as PagedAttentionArgs.
template <class T>
struct LatentAttentionArgs {
  AttentionQueries<T> queries;
  const T* cache = nullptr;  // [num_blocks, block_size, head_dim]
  std::int64_t num_blocks = 0, block_size = 16;
  std::span<const std::int32_t> block_table;  // [sequences, max_blocks]
  std::int64_t max_blocks = 0;
  std::span<const std::int32_t> start;  // [sequences], position of the first query
};

// Backward pass, from the inputs and outputs of the forward pass and the gradient of o. Gradients must not overlap
// inputs; those of tokens from cu_seqlens.back() on are set to zero. The order of every sum is fixed. With `pieces`,
// gradients of keys and values are those of the queries that are there.
template <class T>
struct AttentionBackwardArgs {
  AttentionShape shape;
  std::span<const std::int32_t> cu_seqlens;
  std::int64_t capacity = 0;
  HeadRows<const T> q, k, v, o, grad_o;
  const Accumulator<T>* lse = nullptr;
  HeadRows<T> grad_q, grad_k, grad_v;
  AttentionPieces pieces = {};
  std::span<std::byte> workspace;  // attention_backward_workspace_bytes<T>(...); smaller as in AttentionQueries
};

// Instantiated for T = float, BFloat16 and double; sums are f32 (f64 for double).
template <class T>
void attention_forward(const AttentionForwardArgs<T>& args);
template <class T>
void paged_attention_forward(const PagedAttentionArgs<T>& args);
template <class T>
void latent_attention_forward(const LatentAttentionArgs<T>& args);
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args);

// Workspaces with which the passes use up to `threads` threads. That of the backward pass grows with the longest
// document: each thread holds 2 * head_dim sums for each of its tokens.
template <class T>
[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionShape& shape, int threads);
template <class T>
[[nodiscard]] std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, std::int64_t longest_document,
                                                             int threads);

}  // namespace hone
