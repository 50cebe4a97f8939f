// Forward pass. A unit of work is up to 96 rows, each a query of one head, that share a key head. For each tile of 64
// keys:
//
//   1. pack the keys of the tile; queries, weights and most values are read in place
//   2. scores = queries keys^T, one fma chain over head_dim for each score
//   3. online softmax: weights relative to the running maximum; rescale sum and output where it has increased
//   4. outputs += weights values, continuing one fma chain over the keys for each output
//
// At the end outputs / sums is written. The steps treat each row separately and take its keys in order from the start
// of the sequence, so the division into units and tiles of rows does not change the result.
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_common.h"
#include "backend/cpu/attention_keys.h"
#include "backend/cpu/attention_rows.h"
#include "backend/cpu/gemm_kernels.h"
#include "backend/cpu/gemm_pack.h"

namespace hone {
namespace {

// Most query rows of a unit, which share packed keys; a multiple of a tile's rows.
constexpr std::int64_t kUnitRows = 96;

// Workspace of one thread.
template <class T>
struct ForwardBuffers {
  using Real = Accumulator<T>;
  T* gathered;         // [kKeyTile, head_dim]
  Real* queries;       // [kUnitRows, head_dim], the queries of the unit
  Real* keys;          // packed keys of a tile
  Real* values;        // packed values of a tile
  Real* outputs;       // [kUnitRows, width], not yet divided by the sums
  Real* weights;       // [rows of a tile, kKeyTile]: scores, then e^(score - greatest)
  Real* greatest;      // [kUnitRows], greatest score so far
  Real* sums;          // [kUnitRows], sum of the weights so far
  std::int64_t width;  // elements of a value head, rounded up to whole tiles
  std::size_t bytes;

  ForwardBuffers(const AttentionShape& shape, std::byte* base) {
    const auto& tile = tile_kernels<Real>();
    WorkspaceAllocator cutter(base);
    width = attention_round_up(shape.values(), tile.columns);
    gathered = cutter.take<T>(kKeyTile * shape.head_dim);
    queries = cutter.take<Real>(kUnitRows * shape.head_dim);
    keys = cutter.take<Real>(kKeyTile * shape.head_dim);
    values = cutter.take<Real>(kKeyTile * width);
    outputs = cutter.take<Real>(kUnitRows * width);
    weights = cutter.take<Real>(kMaxTileRows * kKeyTile);
    greatest = cutter.take<Real>(kUnitRows);
    sums = cutter.take<Real>(kUnitRows);
    bytes = cutter.used();
  }
};

// Computes rows [first, first + rows) of one sequence and one key head. A row is one query of one head: row r is query
// r / group with head r % group of the heads that share the key head.
template <class T, class Keys>
class ForwardUnit {
 public:
  using Real = Accumulator<T>;

  ForwardUnit(const AttentionQueries<T>& args, const Keys& keys, std::byte* workspace)
      : args_(args),
        keys_(keys),
        tile_(tile_kernels<Real>()),
        buffers_(args.shape, workspace),
        head_dim_(args.shape.head_dim),
        value_dim_(args.shape.values()),
        group_(args.shape.num_heads / args.shape.num_kv_heads) {}

  void run(std::int64_t sequence, std::int64_t kv_head, std::int64_t first, std::int64_t rows) {
    first_ = first;
    rows_ = rows;
    kv_head_ = kv_head;
    token_ = args_.cu_seqlens[static_cast<std::size_t>(sequence)];
    start_ = keys_.start(sequence);
    gather_queries();
    std::fill_n(buffers_.outputs, rows * buffers_.width, Real(0));
    std::fill_n(buffers_.greatest, rows, -std::numeric_limits<Real>::infinity());
    std::fill_n(buffers_.sums, rows, Real(0));
    const std::int64_t all_keys = keys_seen(rows - 1);
    for (std::int64_t key = 0; key < all_keys; key += kKeyTile) {
      const std::int64_t keys = std::min(kKeyTile, all_keys - key);
      pack_keys(sequence, key, keys);
      for (std::int64_t row = 0; row < rows; row += tile_.rows) attend(row, key, keys);
    }
    write();
  }

 private:
  // Number of keys that a row of the unit sees under the causal mask.
  [[nodiscard]] std::int64_t keys_seen(std::int64_t row) const { return start_ + (first_ + row) / group_ + 1; }

  void gather_queries() {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t token = token_ + (first_ + row) / group_;
      const std::int64_t head = kv_head_ * group_ + (first_ + row) % group_;
      const T* query = args_.q.data + token * args_.q.stride + head * head_dim_;
      for (std::int64_t d = 0; d < head_dim_; ++d) buffers_.queries[row * head_dim_ + d] = static_cast<Real>(query[d]);
    }
  }

  void pack_keys(std::int64_t sequence, std::int64_t key, std::int64_t count) {
    const TileRows<T> k = keys_.keys(sequence, kv_head_, key, count, buffers_.gathered);
    pack({k.data, DTypeOf<T>::value, k.stride, false}, {0, count, 0, head_dim_}, tile_.columns, buffers_.keys);
    const TileRows<T> v = keys_.values(sequence, kv_head_, key, count, buffers_.gathered);
    values_ = {buffers_.values, count * tile_.columns, tile_.columns};
    if constexpr (std::is_same_v<T, Real>) {
      if (buffers_.width == value_dim_) values_ = {v.data, tile_.columns, v.stride};
    }
    if (values_.data == buffers_.values) {
      pack({v.data, DTypeOf<T>::value, v.stride, true}, {0, value_dim_, 0, count}, tile_.columns, buffers_.values);
    }
  }

  // Processes one tile of rows with one tile of keys.
  void attend(std::int64_t row, std::int64_t key, std::int64_t keys) {
    // Rows of the tile that see none of these keys come first; skip them.
    const std::int64_t end = std::min<std::int64_t>(row + tile_.rows, rows_);
    std::int64_t begin = row;
    while (begin < end && keys_seen(begin) <= key) ++begin;
    if (begin == end) return;
    const std::int64_t rows = end - begin;
    const std::int64_t seen = std::min(keys, keys_seen(end - 1) - key);
    // Scores: queries times keys.
    for (std::int64_t j = 0; j < seen; j += tile_.columns) {
      tile_.row_major[rows - 1]({.depth = head_dim_,
                                 .a = buffers_.queries + begin * head_dim_,
                                 .lda = head_dim_,
                                 .b = buffers_.keys + j * head_dim_,
                                 .ldb = tile_.columns,
                                 .c = buffers_.weights + j,
                                 .ldc = kKeyTile,
                                 .load = false});
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      apply_softmax(begin + r, buffers_.weights + r * kKeyTile, std::min(keys, keys_seen(begin + r) - key));
    }
    add_values(begin, rows, key, keys);
  }

  // Step of the online softmax: turns the scores of `count` keys into weights relative to the greatest score so far. If
  // that has increased, rescales the row's sum and output.
  void apply_softmax(std::int64_t row, Real* weights, std::int64_t count) {
    const Real before = buffers_.greatest[row];
    const auto [greatest, sum] = softmax_step(weights, count, static_cast<Real>(args_.shape.scale), before);
    if (greatest == before) {
      buffers_.sums[row] += sum;
      return;
    }
    const Real decay = vexp(before - greatest);
    buffers_.greatest[row] = greatest;
    buffers_.sums[row] = std::fma(buffers_.sums[row], decay, sum);
    Real* output = buffers_.outputs + row * buffers_.width;
    for (std::int64_t d = 0; d < buffers_.width; ++d) output[d] *= decay;
  }

  // Adds weights times values to the outputs. All rows continue their fma chains over the keys that all of them see;
  // then each later row continues over the remaining keys that it sees.
  void add_values(std::int64_t begin, std::int64_t rows, std::int64_t key, std::int64_t keys) {
    const std::int64_t common = std::min(keys, keys_seen(begin) - key);
    for (std::int64_t d = 0; d < buffers_.width; d += tile_.columns) {
      const Real* values = values_.data + d / tile_.columns * values_.panel;
      Real* outputs = buffers_.outputs + begin * buffers_.width + d;
      tile_.row_major[rows - 1]({.depth = common,
                                 .a = buffers_.weights,
                                 .lda = kKeyTile,
                                 .b = values,
                                 .ldb = values_.stride,
                                 .c = outputs,
                                 .ldc = buffers_.width,
                                 .load = true});
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t rest = std::min(keys, keys_seen(begin + r) - key) - common;
        if (rest == 0) continue;
        tile_.row_major[0]({.depth = rest,
                            .a = buffers_.weights + r * kKeyTile + common,
                            .lda = kKeyTile,
                            .b = values + common * values_.stride,
                            .ldb = values_.stride,
                            .c = outputs + r * buffers_.width,
                            .ldc = buffers_.width,
                            .load = true});
      }
    }
  }

  void write() {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t token = token_ + (first_ + row) / group_;
      const std::int64_t head = kv_head_ * group_ + (first_ + row) % group_;
      const Real* output = buffers_.outputs + row * buffers_.width;
      T* o = args_.o.data + token * args_.o.stride + head * value_dim_;
      for (std::int64_t d = 0; d < value_dim_; ++d) o[d] = T(output[d] / buffers_.sums[row]);
      if (args_.lse == nullptr) continue;
      args_.lse[token * args_.shape.num_heads + head] = buffers_.greatest[row] + vlog(buffers_.sums[row]);
    }
  }

  const AttentionQueries<T>& args_;
  const Keys& keys_;
  const TileKernels<Real>& tile_;
  ForwardBuffers<T> buffers_;
  std::int64_t head_dim_, value_dim_, group_;
  std::int64_t first_ = 0, rows_ = 0, kv_head_ = 0, token_ = 0, start_ = 0;
  // Values of the current keys: packed, or in place if they have the type of the sums and fill whole tiles.
  struct {
    const Real* data;
    std::int64_t panel, stride;  // elements from the columns of one tile to those of the next, from one key to the next
  } values_{};
};

// Rows of a unit: kUnitRows, or fewer if some of the threads would have no unit.
template <class T>
std::int64_t unit_rows(const AttentionQueries<T>& args, std::int64_t threads) {
  const std::int64_t tile = tile_kernels<Accumulator<T>>().rows;
  const std::int64_t rows = args.cu_seqlens.back() * args.shape.num_heads;
  return std::min(kUnitRows, attention_round_up((rows + threads - 1) / threads, tile));
}

// Runs all units. They are assigned to the threads round-robin, because later rows of a sequence see more keys.
template <class T, class Keys>
void run_forward(const AttentionQueries<T>& args, const Keys& keys) {
  check_cu_seqlens(args.cu_seqlens, args.capacity);
  const std::int64_t group = args.shape.num_heads / args.shape.num_kv_heads;
  const std::size_t share = ForwardBuffers<T>(args.shape, nullptr).bytes;
  for_each_share(args.workspace, share, [&](std::byte* workspace, std::int64_t thread, std::int64_t threads) {
    ForwardUnit<T, Keys> unit(args, keys, workspace);
    const std::int64_t most_rows = unit_rows(args, threads);
    std::int64_t turn = 0;
    for (std::size_t s = 0; s + 1 < args.cu_seqlens.size(); ++s) {
      const std::int64_t rows = (args.cu_seqlens[s + 1] - args.cu_seqlens[s]) * group;
      for (std::int64_t head = 0; head < args.shape.num_kv_heads; ++head) {
        for (std::int64_t first = 0; first < rows; first += most_rows) {
          if (turn++ % threads != thread) continue;
          unit.run(static_cast<std::int64_t>(s), head, first, std::min(most_rows, rows - first));
        }
      }
    }
  });
  const std::int64_t tokens = args.cu_seqlens.back();
  zero_rows(args.o, tokens, args.capacity, args.shape.num_heads * args.shape.values());
  if (args.lse == nullptr) return;
  std::fill(args.lse + tokens * args.shape.num_heads, args.lse + args.capacity * args.shape.num_heads, 0);
}

// Checks the counts and the lengths of sequences in pages.
template <class Args>
void check_paged(const Args& args) {
  const auto& cu_seqlens = args.queries.cu_seqlens;
  check_cu_seqlens(cu_seqlens, args.queries.capacity);
  HONE_ASSERT(args.start.size() + 1 == cu_seqlens.size(), args.start.size(), " starts, ", cu_seqlens.size(),
              " cu_seqlens");
  HONE_ASSERT(args.block_table.size() >= args.start.size() * static_cast<std::size_t>(args.max_blocks),
              args.block_table.size());
  for (std::size_t s = 0; s < args.start.size(); ++s) {
    const std::int64_t length = std::int64_t{args.start[s]} + cu_seqlens[s + 1] - cu_seqlens[s];
    HONE_ASSERT(args.start[s] >= 0 && length <= args.max_blocks * args.block_size, "sequence ", s, " of length ",
                length);
  }
}

}  // namespace

void check_attention_shape(const AttentionShape& shape) {
  if (shape.head_dim <= 0 || shape.head_dim > 256 || shape.head_dim % 8 != 0) {
    throw Error("attention", text_of("head_dim is ", shape.head_dim), "it must be a multiple of 8 and at most 256");
  }
  if (shape.num_kv_heads <= 0 || shape.num_heads <= 0 || shape.num_heads % shape.num_kv_heads != 0) {
    throw Error("attention", text_of(shape.num_heads, " query heads, ", shape.num_kv_heads, " key heads"),
                "the number of query heads must be a multiple of the number of key heads");
  }
}

void check_latent_shape(const AttentionShape& shape) {
  const bool has_values = shape.value_dim > 0 && shape.value_dim < shape.head_dim;
  if (shape.num_heads > 0 && shape.num_kv_heads == 1 && has_values) return;
  throw Error("latent attention",
              text_of(shape.num_heads, " heads, ", shape.num_kv_heads, " of keys, ", shape.head_dim,
                      " numbers in a row, ", shape.value_dim, " of them a value"),
              "use one head of keys, and rows that are longer than values");
}

template <class T>
void attention_forward(const AttentionForwardArgs<T>& args) {
  check_attention_shape(args.queries.shape);
  if (!args.pieces.documents.empty()) {
    for_each_piece(args.pieces, args.queries.cu_seqlens, [](const AttentionPiece&) {});  // checks them
  }
  run_forward(args.queries, PlainKeys<T>{args});
}

template <class T>
void paged_attention_forward(const PagedAttentionArgs<T>& args) {
  check_attention_shape(args.queries.shape);
  check_paged(args);
  run_forward(args.queries, PagedKeyRows<T>{args});
}

template <class T>
void latent_attention_forward(const LatentAttentionArgs<T>& args) {
  check_latent_shape(args.queries.shape);
  check_paged(args);
  run_forward(args.queries, LatentKeys<T>{args});
}

template <class T>
std::size_t attention_workspace_bytes(const AttentionShape& shape, int threads) {
  if (shape.value_dim == 0) {
    check_attention_shape(shape);
  } else {
    check_latent_shape(shape);
  }
  const std::size_t share = ForwardBuffers<T>(shape, nullptr).bytes;
  return share * static_cast<std::size_t>(std::max(threads, 1)) + kWorkspaceAlignment;
}

#define HONE_INSTANTIATE(T)                                              \
  template void attention_forward(const AttentionForwardArgs<T>&);       \
  template void paged_attention_forward(const PagedAttentionArgs<T>&);   \
  template void latent_attention_forward(const LatentAttentionArgs<T>&); \
  template std::size_t attention_workspace_bytes<T>(const AttentionShape&, int);
HONE_INSTANTIATE(float)
HONE_INSTANTIATE(BFloat16)
HONE_INSTANTIATE(double)
#undef HONE_INSTANTIATE

}  // namespace hone
