// Backward pass. For each document and key head, for each head of its group, for each tile of 96 queries and each tile
// of 96 keys that these see:
//
//   S = Q K^T, dP = dO V^T                        recomputed scores, gradient of the weights
//   P = exp(scale S - lse), dS = scale P (dP - D)  D = dot(dO, O) of each row
//   dV += P^T dO, dK += dS^T Q, dQ += dS K
//
// Keys and values are packed for the first two products. All other operands are read in place: from the tensors, or
// from copies that are widened and padded to whole tiles. Weights that the causal mask excludes are 0 or not
// multiplied.
#include <type_traits>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_common.h"
#include "backend/cpu/attention_rows.h"
#include "backend/cpu/gemm_kernels.h"
#include "backend/cpu/gemm_pack.h"

namespace hone {
namespace {

constexpr std::int64_t kTile = 96;  // queries and keys of a tile; a multiple of the rows and columns of every GEMM tile

// View of a matrix: address of its first element and distance between two rows in elements.
template <class U>
struct Block {
  U* data;
  std::int64_t stride;
};

// Workspace of one thread. `width` is head_dim rounded up to whole GEMM tiles.
template <class T>
struct BackwardBuffers {
  using Real = Accumulator<T>;
  Real* weights;        // [kTile, kTile]
  Real* grad_scores;    // [kTile, kTile]
  Real* queries;        // [kTile, width]
  Real* grad_o;         // [kTile, width]
  Real* keys;           // [kTile, width]
  Real* packed_keys;    // [kTile, head_dim], packed
  Real* packed_values;  // [kTile, head_dim], packed
  Real* grad_q;         // [kTile, width]
  Real* grad_k;         // [longest document, width]
  Real* grad_v;         // [longest document, width]
  std::int64_t width;
  std::size_t bytes;

  BackwardBuffers(const AttentionShape& shape, std::int64_t longest, std::byte* base) {
    WorkspaceAllocator cutter(base);
    width = attention_round_up(shape.head_dim, tile_kernels<Real>().columns);
    weights = cutter.take<Real>(kTile * kTile);
    grad_scores = cutter.take<Real>(kTile * kTile);
    queries = cutter.take<Real>(kTile * width);
    grad_o = cutter.take<Real>(kTile * width);
    keys = cutter.take<Real>(kTile * width);
    packed_keys = cutter.take<Real>(kTile * shape.head_dim);
    packed_values = cutter.take<Real>(kTile * shape.head_dim);
    grad_q = cutter.take<Real>(kTile * width);
    grad_k = cutter.take<Real>(longest * width);
    grad_v = cutter.take<Real>(longest * width);
    bytes = cutter.used();
  }
};

// A document: the rows of its keys and the sequences of its queries.
struct KeyDocument {
  std::int64_t key_row = 0, keys = 0;
  std::vector<AttentionPiece> pieces;
};

// Computes the gradients of one document and one key head. Tiles of queries are processed one after another, head by
// head, each with all keys that it sees. The gradients of keys and values are thus summed over the heads of the group
// and the queries in a fixed order.
template <class T>
class BackwardUnit {
 public:
  using Real = Accumulator<T>;

  BackwardUnit(const AttentionBackwardArgs<T>& args, std::int64_t longest, std::byte* workspace)
      : args_(args),
        tile_(tile_kernels<Real>()),
        buffers_(args.shape, longest, workspace),
        head_dim_(args.shape.head_dim),
        width_(buffers_.width),
        group_(args.shape.num_heads / args.shape.num_kv_heads) {}

  void run(const KeyDocument& document, std::int64_t kv_head) {
    key_row_ = document.key_row;
    std::fill_n(buffers_.grad_k, document.keys * width_, Real(0));
    std::fill_n(buffers_.grad_v, document.keys * width_, Real(0));
    for (std::int64_t head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
      for (const AttentionPiece& piece : document.pieces) {
        for (std::int64_t row = 0; row < piece.rows; row += kTile) {
          query_ = piece.start + row;
          rows_ = std::min(kTile, piece.rows - row);
          run_queries(piece.token + row, head, kv_head);
        }
      }
    }
    write(buffers_.grad_k, at(args_.grad_k, key_row_, kv_head), document.keys);
    write(buffers_.grad_v, at(args_.grad_v, key_row_, kv_head), document.keys);
  }

 private:
  template <class U>
  [[nodiscard]] Block<U> at(const HeadRows<U>& rows, std::int64_t token, std::int64_t head) const {
    return {rows.data + token * rows.stride + head * head_dim_, rows.stride};
  }

  // token: of the first query of the tile.
  void run_queries(std::int64_t token, std::int64_t head, std::int64_t kv_head) {
    const auto o = at(args_.o, token, head);
    const auto grad_o = at(args_.grad_o, token, head);
    Real overlap[kTile];  // [rows], dot(grad_o, o) of each row: the term of the softmax gradient
    for (std::int64_t r = 0; r < rows_; ++r) {
      overlap[r] = dot16(grad_o.data + r * grad_o.stride, o.data + r * o.stride, head_dim_);
    }
    const Block<const Real> queries = widened(at(args_.q, token, head), rows_, buffers_.queries);
    const Block<const Real> grads = widened(grad_o, rows_, buffers_.grad_o);
    for (key_ = 0; key_ < query_ + rows_; key_ += kTile) {
      keys_ = std::min(kTile, query_ + rows_ - key_);
      const auto k = at(args_.k, key_row_ + key_, kv_head);
      const auto v = at(args_.v, key_row_ + key_, kv_head);
      const Block<const Real> keys = widened(k, keys_, buffers_.keys);
      pack({k.data, DTypeOf<T>::value, k.stride, false}, {0, keys_, 0, head_dim_}, tile_.columns, buffers_.packed_keys);
      pack({v.data, DTypeOf<T>::value, v.stride, false}, {0, keys_, 0, head_dim_}, tile_.columns,
           buffers_.packed_values);
      multiply_rows(queries, buffers_.packed_keys, buffers_.weights);
      multiply_rows(grads, buffers_.packed_values, buffers_.grad_scores);
      for (std::int64_t r = 0; r < rows_; ++r) {
        apply_softmax(r, args_.lse[(token + r) * args_.shape.num_heads + head], overlap[r]);
      }
      add_over_queries(buffers_.weights, grads, buffers_.grad_v);
      add_over_queries(buffers_.grad_scores, queries, buffers_.grad_k);
      add_over_keys(keys);
    }
    write(buffers_.grad_q, at(args_.grad_q, token, head), rows_);
  }

  // Number of keys of the tile that row r sees.
  [[nodiscard]] std::int64_t seen(std::int64_t r) const {
    return std::clamp<std::int64_t>(query_ + r + 1 - key_, 0, keys_);
  }

  // products[r, key] = dot of row r of `rows` and a packed key or value, as far as the row or a later one of its GEMM
  // tile sees it.
  void multiply_rows(const Block<const Real>& rows, const Real* packed, Real* products) const {
    for (std::int64_t r = 0; r < rows_; r += tile_.rows) {
      const std::int64_t count = std::min<std::int64_t>(tile_.rows, rows_ - r);
      for (std::int64_t j = 0; j < seen(r + count - 1); j += tile_.columns) {
        tile_.row_major[count - 1]({.depth = head_dim_,
                                    .a = rows.data + r * rows.stride,
                                    .lda = rows.stride,
                                    .b = packed + j * head_dim_,
                                    .ldb = tile_.columns,
                                    .c = products + r * kTile + j,
                                    .ldc = kTile,
                                    .load = false});
      }
    }
  }

  // Replaces row r of the scores by the weights, and the gradient of the weights by that of the scores. Both are 0 for
  // keys that the row does not see.
  void apply_softmax(std::int64_t r, Real lse, Real overlap) {
    const auto scale = static_cast<Real>(args_.shape.scale);
    const std::int64_t count = seen(r);
    Real* weights = buffers_.weights + r * kTile;
    Real* grad = buffers_.grad_scores + r * kTile;
    softmax_gradient(weights, grad, count, scale, lse, overlap);
    std::fill(weights + count, weights + keys_, Real(0));
    std::fill(grad + count, grad + keys_, Real(0));
  }

  // sums[key] += sum over the queries of factors[query, key] * rows[query].
  void add_over_queries(const Real* factors, const Block<const Real>& rows, Real* sums) const {
    for (std::int64_t j = 0; j < keys_; j += tile_.rows) {
      const std::int64_t count = std::min<std::int64_t>(tile_.rows, keys_ - j);
      const std::int64_t first = std::max<std::int64_t>(key_ + j - query_, 0);  // the first query that sees key j
      for (std::int64_t d = 0; d < width_; d += tile_.columns) {
        tile_.depth_major[count - 1]({.depth = rows_ - first,
                                      .a = factors + first * kTile + j,
                                      .lda = kTile,
                                      .b = rows.data + first * rows.stride + d,
                                      .ldb = rows.stride,
                                      .c = sums + (key_ + j) * width_ + d,
                                      .ldc = width_,
                                      .load = true});
      }
    }
  }

  // grad_q[query] += sum over the keys of grad_scores[query, key] * keys[key].
  void add_over_keys(const Block<const Real>& keys) const {
    for (std::int64_t r = 0; r < rows_; r += tile_.rows) {
      const std::int64_t count = std::min<std::int64_t>(tile_.rows, rows_ - r);
      for (std::int64_t d = 0; d < width_; d += tile_.columns) {
        tile_.row_major[count - 1]({.depth = seen(r + count - 1),
                                    .a = buffers_.grad_scores + r * kTile,
                                    .lda = kTile,
                                    .b = keys.data + d,
                                    .ldb = keys.stride,
                                    .c = buffers_.grad_q + r * width_ + d,
                                    .ldc = width_,
                                    .load = key_ > 0});
      }
    }
  }

  // Rows of a head as the GEMM tiles read them: in place if they have the type of the sums and fill whole tiles, or
  // copied to `memory`, widened and padded to `width` elements with 0.
  Block<const Real> widened(const Block<const T>& from, std::int64_t rows, Real* memory) const {
    if constexpr (std::is_same_v<T, Real>) {
      if (width_ == head_dim_) return from;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = from.data + r * from.stride;
      Real* to = memory + r * width_;
      for (std::int64_t d = 0; d < head_dim_; ++d) to[d] = static_cast<Real>(row[d]);
      std::fill(to + head_dim_, to + width_, Real(0));
    }
    return {memory, width_};
  }

  void write(const Real* from, const Block<T>& to, std::int64_t rows) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t d = 0; d < head_dim_; ++d) to.data[r * to.stride + d] = T(from[r * width_ + d]);
    }
  }

  const AttentionBackwardArgs<T>& args_;
  const TileKernels<Real>& tile_;
  BackwardBuffers<T> buffers_;
  std::int64_t head_dim_, width_, group_;
  // The current tiles: positions of the first query and key in the document, whose first key is row key_row_.
  std::int64_t query_ = 0, rows_ = 0, key_ = 0, keys_ = 0, key_row_ = 0;
};

// Returns the documents of which there are keys.
template <class T>
std::vector<KeyDocument> documents_of(const AttentionBackwardArgs<T>& args) {
  std::vector<KeyDocument> documents;
  const bool of_pieces = !args.pieces.documents.empty();
  const auto bounds = of_pieces ? args.pieces.documents : args.cu_seqlens;
  for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
    const std::int64_t keys = bounds[d + 1] - bounds[d];
    documents.push_back({bounds[d], keys, {}});
    if (!of_pieces) documents.back().pieces.push_back({d, bounds[d], keys, 0, bounds[d], keys});
  }
  if (!of_pieces) return documents;
  std::size_t d = 0;
  for_each_piece(args.pieces, args.cu_seqlens, [&](const AttentionPiece& piece) {
    while (static_cast<std::size_t>(args.pieces.of[d + 1]) <= piece.sequence) ++d;
    documents[d].pieces.push_back(piece);
  });
  return documents;
}

}  // namespace

template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args) {
  check_attention_shape(args.shape);
  check_cu_seqlens(args.cu_seqlens, args.capacity);
  const std::vector<KeyDocument> documents = documents_of(args);
  std::int64_t longest = 0;
  for (const KeyDocument& document : documents) longest = std::max(longest, document.keys);
  const std::size_t share = BackwardBuffers<T>(args.shape, longest, nullptr).bytes;
  for_each_share(args.workspace, share, [&](std::byte* workspace, std::int64_t thread, std::int64_t threads) {
    BackwardUnit<T> unit(args, longest, workspace);
    std::int64_t turn = 0;
    for (const KeyDocument& document : documents) {
      for (std::int64_t head = 0; head < args.shape.num_kv_heads; ++head) {
        if (turn++ % threads == thread) unit.run(document, head);
      }
    }
  });
  zero_rows(args.grad_q, args.cu_seqlens.back(), args.capacity, args.shape.num_heads * args.shape.head_dim);
  const bool of_pieces = !args.pieces.documents.empty();
  const std::int64_t keys = of_pieces ? args.pieces.documents.back() : args.cu_seqlens.back();
  const std::int64_t capacity = of_pieces ? args.pieces.key_capacity : args.capacity;
  zero_rows(args.grad_k, keys, capacity, args.shape.num_kv_heads * args.shape.head_dim);
  zero_rows(args.grad_v, keys, capacity, args.shape.num_kv_heads * args.shape.head_dim);
}

template <class T>
std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, std::int64_t longest_document,
                                               int threads) {
  check_attention_shape(shape);
  const std::size_t share = BackwardBuffers<T>(shape, longest_document, nullptr).bytes;
  return share * static_cast<std::size_t>(std::max(threads, 1)) + kWorkspaceAlignment;
}

#define HONE_INSTANTIATE(T)                                          \
  template void attention_backward(const AttentionBackwardArgs<T>&); \
  template std::size_t attention_backward_workspace_bytes<T>(const AttentionShape&, std::int64_t, int);
HONE_INSTANTIATE(float)
HONE_INSTANTIATE(BFloat16)
HONE_INSTANTIATE(double)
#undef HONE_INSTANTIATE

}  // namespace hone
