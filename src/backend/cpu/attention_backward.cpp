// Backward pass. For each sequence and key head, for each head of its group, for each tile of 64 queries and each tile
// of 64 keys that these see:
//
//   S = Q K^T, dP = dO V^T                        recomputed scores, gradient of the weights
//   P = exp(scale S - lse), dS = scale P (dP - D)  D = dot(dO, O) of each row
//   dV += P^T dO, dK += dS^T Q, dQ += dS K
#include <type_traits>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_common.h"
#include "backend/cpu/gemm.h"

namespace hone {
namespace {

constexpr std::int64_t kQueryTile = 64;

// View of a matrix: address of its first element and distance between two rows in elements.
template <class U>
struct Block {
  U* data;
  std::int64_t stride;
};

// Workspace of one thread.
template <class T>
struct BackwardBuffers {
  using Real = Accumulator<T>;
  Real* weights;      // [kQueryTile, kKeyTile]
  Real* grad_scores;  // [kQueryTile, kKeyTile]
  Real* grad_q;       // [kQueryTile, head_dim]
  Real* grad_k;       // [longest sequence, head_dim]
  Real* grad_v;       // [longest sequence, head_dim]
  std::span<std::byte> gemm;
  std::size_t bytes;

  BackwardBuffers(const AttentionShape& shape, std::int64_t longest, std::byte* base) {
    WorkspaceAllocator cutter(base);
    weights = cutter.take<Real>(kQueryTile * kKeyTile);
    grad_scores = cutter.take<Real>(kQueryTile * kKeyTile);
    grad_q = cutter.take<Real>(kQueryTile * shape.head_dim);
    grad_k = cutter.take<Real>(longest * shape.head_dim);
    grad_v = cutter.take<Real>(longest * shape.head_dim);
    // Upper bound of m, n and k of all GEMMs in a unit.
    const std::int64_t side = std::max(kKeyTile, shape.head_dim);
    const DType type = DTypeOf<Real>::value;
    const std::size_t size = gemm_workspace_bytes(
        {.m = side, .n = side, .k = side, .transpose_b = Transpose::no, .a_type = type, .b_type = type, .c_type = type},
        1);
    gemm = {cutter.take<std::byte>(static_cast<std::int64_t>(size)), size};
    bytes = cutter.used();
  }
};

// Computes the gradients of one sequence and one key head. Tiles of queries are processed one after another, head by
// head, each with all keys that it sees. The gradients of keys and values are thus summed over the heads of the group
// and the queries in a fixed order.
template <class T>
class BackwardUnit {
 public:
  using Real = Accumulator<T>;

  BackwardUnit(const AttentionBackwardArgs<T>& args, std::int64_t longest, std::byte* workspace)
      : args_(args),
        buffers_(args.shape, longest, workspace),
        head_dim_(args.shape.head_dim),
        group_(args.shape.num_heads / args.shape.num_kv_heads) {}

  void run(std::int64_t token, std::int64_t length, std::int64_t kv_head) {
    std::fill_n(buffers_.grad_k, length * head_dim_, Real(0));
    std::fill_n(buffers_.grad_v, length * head_dim_, Real(0));
    for (std::int64_t head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
      for (std::int64_t query = 0; query < length; query += kQueryTile) {
        run_queries(token, query, std::min(kQueryTile, length - query), head, kv_head);
      }
    }
    write(buffers_.grad_k, at(args_.grad_k, token, kv_head), length);
    write(buffers_.grad_v, at(args_.grad_v, token, kv_head), length);
  }

 private:
  template <class U>
  [[nodiscard]] Block<U> at(const HeadRows<U>& rows, std::int64_t token, std::int64_t head) const {
    return {rows.data + token * rows.stride + head * head_dim_, rows.stride};
  }

  void run_queries(std::int64_t token, std::int64_t query, std::int64_t rows, std::int64_t head, std::int64_t kv_head) {
    const auto q = at(args_.q, token + query, head);
    const auto o = at(args_.o, token + query, head);
    const auto grad_o = at(args_.grad_o, token + query, head);
    Real overlap[kQueryTile];  // [rows], dot(grad_o, o) of each row: the term of the softmax gradient
    for (std::int64_t r = 0; r < rows; ++r) {
      overlap[r] = dot16(grad_o.data + r * grad_o.stride, o.data + r * o.stride, head_dim_);
    }
    for (std::int64_t key = 0; key < query + rows; key += kKeyTile) {
      const std::int64_t keys = std::min(kKeyTile, query + rows - key);
      const auto k = at(args_.k, token + key, kv_head);
      const auto v = at(args_.v, token + key, kv_head);
      const Block<Real> weights{buffers_.weights, kKeyTile};
      const Block<Real> grad_scores{buffers_.grad_scores, kKeyTile};
      // Recompute the scores and the gradient of the weights, then convert both row by row.
      multiply(rows, keys, head_dim_, Transpose::no, q, Transpose::yes, k, weights, false);
      multiply(rows, keys, head_dim_, Transpose::no, grad_o, Transpose::yes, v, grad_scores, false);
      for (std::int64_t r = 0; r < rows; ++r) {
        const Real lse = args_.lse[(token + query + r) * args_.shape.num_heads + head];
        apply_softmax(r, std::clamp<std::int64_t>(query + r + 1 - key, 0, keys), keys, lse, overlap[r]);
      }
      // Add this tile to grad_v, grad_k and grad_q.
      multiply(keys, head_dim_, rows, Transpose::yes, weights, Transpose::no, grad_o,
               Block<Real>{buffers_.grad_v + key * head_dim_, head_dim_}, true);
      multiply(keys, head_dim_, rows, Transpose::yes, grad_scores, Transpose::no, q,
               Block<Real>{buffers_.grad_k + key * head_dim_, head_dim_}, true);
      multiply(rows, head_dim_, keys, Transpose::no, grad_scores, Transpose::no, k,
               Block<Real>{buffers_.grad_q, head_dim_}, key > 0);
    }
    write(buffers_.grad_q, at(args_.grad_q, token + query, head), rows);
  }

  // Replaces row r of the scores by the weights, and the gradient of the weights by that of the scores. Both are 0 for
  // keys that the row does not see.
  void apply_softmax(std::int64_t r, std::int64_t seen, std::int64_t keys, Real lse, Real overlap) {
    const auto scale = static_cast<Real>(args_.shape.scale);
    Real* weights = buffers_.weights + r * kKeyTile;
    Real* grad = buffers_.grad_scores + r * kKeyTile;
    for (std::int64_t j = 0; j < seen; ++j) {
      const Real weight = vexp(weights[j] * scale - lse);
      weights[j] = weight;
      grad[j] = weight * (grad[j] - overlap) * scale;
    }
    std::fill(weights + seen, weights + keys, Real(0));
    std::fill(grad + seen, grad + keys, Real(0));
  }

  template <class A, class B>
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose_a, const Block<A>& a,
                Transpose transpose_b, const Block<B>& b, const Block<Real>& c, bool accumulate) {
    gemm({.m = m,
          .n = n,
          .k = k,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .a_type = DTypeOf<std::remove_const_t<A>>::value,
          .b_type = DTypeOf<std::remove_const_t<B>>::value,
          .c_type = DTypeOf<Real>::value,
          .a = a.data,
          .b = b.data,
          .c = c.data,
          .lda = a.stride,
          .ldb = b.stride,
          .ldc = c.stride,
          .accumulate = accumulate,
          .workspace = buffers_.gemm});
  }

  void write(const Real* from, const Block<T>& to, std::int64_t rows) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t d = 0; d < head_dim_; ++d) to.data[r * to.stride + d] = T(from[r * head_dim_ + d]);
    }
  }

  const AttentionBackwardArgs<T>& args_;
  BackwardBuffers<T> buffers_;
  std::int64_t head_dim_, group_;
};

}  // namespace

template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args) {
  check_attention_shape(args.shape);
  check_cu_seqlens(args.cu_seqlens, args.capacity);
  std::int64_t longest = 0;
  for (std::size_t s = 1; s < args.cu_seqlens.size(); ++s) {
    longest = std::max<std::int64_t>(longest, args.cu_seqlens[s] - args.cu_seqlens[s - 1]);
  }
  const std::size_t share = BackwardBuffers<T>(args.shape, longest, nullptr).bytes;
  for_each_share(args.workspace, share, [&](std::byte* workspace, std::int64_t thread, std::int64_t threads) {
    BackwardUnit<T> unit(args, longest, workspace);
    std::int64_t turn = 0;
    for (std::size_t s = 0; s + 1 < args.cu_seqlens.size(); ++s) {
      for (std::int64_t head = 0; head < args.shape.num_kv_heads; ++head) {
        if (turn++ % threads == thread) unit.run(args.cu_seqlens[s], args.cu_seqlens[s + 1] - args.cu_seqlens[s], head);
      }
    }
  });
  const std::int64_t tokens = args.cu_seqlens.back();
  zero_rows(args.grad_q, tokens, args.capacity, args.shape.num_heads * args.shape.head_dim);
  zero_rows(args.grad_k, tokens, args.capacity, args.shape.num_kv_heads * args.shape.head_dim);
  zero_rows(args.grad_v, tokens, args.capacity, args.shape.num_kv_heads * args.shape.head_dim);
}

template <class T>
std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, std::int64_t longest_sequence,
                                               int threads) {
  check_attention_shape(shape);
  const std::size_t share = BackwardBuffers<T>(shape, longest_sequence, nullptr).bytes;
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
