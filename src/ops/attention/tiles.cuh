// Tiles of query rows for attention kernels, and where the keys of a sequence are stored. A block takes a tile of the
// rows of one sequence. The tile follows from the block's index and from cu_seqlens, which only the device knows: the
// grid has room for any division of the rows into sequences, and blocks without a tile return immediately.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "ops/cuda_kernel.cuh"

namespace hone {

// Throws Error unless the kernels support the head size.
inline void check_head_dim(std::int64_t head_dim) {
  if (head_dim > 0 && head_dim <= 256 && head_dim % 8 == 0) return;
  throw Error("attention", text_of("head_dim is ", head_dim), "use a multiple of 8, at most 256");
}

// Sequences laid end to end: cu_seqlens [sequences + 1] starts with 0. Rows after the last sequence, up to `capacity`,
// belong to none.
struct Sequences {
  const std::int32_t* cu_seqlens;
  RowCount count;
  std::int64_t capacity;
};

// Rows [first, end) of the `rows` rows of a sequence that starts at `token`. Rows outside all sequences are handled as
// one more sequence (`outside`).
struct SequenceTile {
  std::int32_t sequence;
  std::int64_t token;
  std::int32_t rows, first, end;
  bool outside;
};

// Upper bound of the number of tiles of `tile_rows` rows, if each token has `per_token` rows.
[[nodiscard]] inline std::int64_t tiles_capacity(const Sequences& sequences, std::int64_t per_token,
                                                 std::int64_t tile_rows) {
  return sequences.capacity * per_token / tile_rows + sequences.count.capacity + 1;
}

// The tile with an index below tiles_capacity(); it is empty (first >= end) if no tile has that index. The indices of
// sequence s start at floor(rows before it / tile_rows) + s, which leaves at least as many as it needs. All threads of
// a warp must call it; all get the same tile.
[[nodiscard]] __device__ inline SequenceTile sequence_tile(const Sequences& sequences, std::int64_t per_token,
                                                           std::int64_t tile_rows, std::int64_t index) {
  const std::int32_t* cu_seqlens = sequences.cu_seqlens;
  const auto count = static_cast<std::int32_t>(sequences.count.get());
  const auto first_index = [&](std::int32_t s) { return cu_seqlens[s] * per_token / tile_rows + s; };
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  std::int32_t found = 0;
  for (std::int32_t left = count + 1; left > 1;) {  // the last of [found, found + left) that starts at or below index
    const std::int32_t step = (left + 31) / 32;
    const std::int32_t at = lane * step;
    const bool reached = at < left && first_index(found + at) <= index;
    const std::int32_t last = (__popc(__ballot_sync(0xFFFFFFFFu, reached)) - 1) * step;
    found += last;
    left = min(step, left - last);
  }
  SequenceTile tile{};
  tile.sequence = found;
  tile.token = cu_seqlens[found];
  tile.outside = found == count;
  const std::int64_t token_end = tile.outside ? sequences.capacity : cu_seqlens[found + 1];
  tile.rows = static_cast<std::int32_t>((token_end - tile.token) * per_token);
  tile.first = static_cast<std::int32_t>((index - first_index(found)) * tile_rows);
  tile.end = min(tile.first + static_cast<std::int32_t>(tile_rows), tile.rows);
  return tile;
}

// Queries and outputs of attention. For a key head, query row r of a sequence is token r / group and the head's query
// head r % group, where group = heads / kv_heads.
template <class T>
struct TileQueries {
  using A = CudaAccumulator<T>;
  Sequences sequences;
  const T* q;
  std::int64_t q_stride;  // elements from one token to the next
  T* o;                   // [capacity, heads, head_dim]
  A* lse;                 // [capacity, heads]
  std::int32_t heads, kv_heads, head_dim;
  std::int32_t value_dim;  // the columns of a value head from here on are zero, and so are those of o
  A scale;

  [[nodiscard]] __host__ __device__ std::int32_t group() const { return heads / kv_heads; }
};

// The query heads in the first columns of rows qkv, with the sizes of an operation's attributes.
template <class T, class Attributes>
[[nodiscard]] TileQueries<T> tile_queries(const Attributes& a, const Sequences& sequences, const TensorView& qkv,
                                          const TensorView& o, const TensorView& lse) {
  return {.sequences = sequences,
          .q = cuda_data<T>(qkv),
          .q_stride = qkv.row_size(),
          .o = cuda_data<T>(o),
          .lse = cuda_data<CudaAccumulator<T>>(lse),
          .heads = static_cast<std::int32_t>(a.heads),
          .kv_heads = static_cast<std::int32_t>(a.kv_heads),
          .head_dim = static_cast<std::int32_t>(a.head_dim),
          .value_dim = static_cast<std::int32_t>(a.values()),
          .scale = static_cast<CudaAccumulator<T>>(a.scale)};
}

// Keys and values packed like the queries. Each source of keys has: kDecodes, true if sequences may have few queries
// each; kFp8, true if k and v are bytes of e4m3 with scales; rows, of k and v; start(), the position of a sequence's
// first query; offset(), in elements, of a key's row from k and v. Sources without pages also have first_row(), the row
// of a sequence's first key, from which the others follow.
template <class T>
struct PackedKeys {
  static constexpr bool kDecodes = false;
  static constexpr bool kFp8 = false;
  const T* k;
  const T* v;
  std::int64_t stride;
  std::int64_t rows;

  [[nodiscard]] __device__ std::int64_t start(const SequenceTile&) const { return 0; }
  [[nodiscard]] __device__ std::int64_t first_row(const SequenceTile& tile) const { return tile.token; }
  [[nodiscard]] __device__ std::int64_t offset(const SequenceTile& tile, std::int64_t key) const {
    return (tile.token + key) * stride;
  }
};

// Keys and values of whole documents, next to each other, for sequences that are pieces of these documents.
template <class T>
struct PieceKeys {
  static constexpr bool kDecodes = false;
  static constexpr bool kFp8 = false;
  const T* k;
  const T* v;
  std::int64_t stride;
  std::int64_t rows;
  const std::int32_t* starts;      // [sequences]: the position of the first query in its document
  const std::int32_t* first_rows;  // [sequences]: the row of the document's first key

  [[nodiscard]] __device__ std::int64_t start(const SequenceTile& tile) const { return starts[tile.sequence]; }
  [[nodiscard]] __device__ std::int64_t first_row(const SequenceTile& tile) const { return first_rows[tile.sequence]; }
  [[nodiscard]] __device__ std::int64_t offset(const SequenceTile& tile, std::int64_t key) const {
    return (first_row(tile) + key) * stride;
  }
};

// Keys and values in pages: key p of sequence s is row p % block_size of page table[s, p / block_size].
template <class T>
struct PagedKeys {
  static constexpr bool kDecodes = true;
  static constexpr bool kFp8 = false;
  const T* k;
  const T* v;
  std::int64_t stride;
  const std::int32_t* table;   // [sequences, max_blocks]
  const std::int32_t* starts;  // [sequences]: the position of the first query
  std::int64_t rows;           // of k and v: pages x block_size
  std::int32_t max_blocks;
  std::int32_t block_size;
  bool fixed = false;  // no node of the program writes table, starts or cu_seqlens

  // True if a page fills whole swizzled rows of shared memory, so that it can be copied as a box (wgmma_forward.cuh).
  [[nodiscard]] __host__ __device__ bool boxed() const {
    return block_size % 8 == 0 && block_size <= 128 && 128 % block_size == 0;
  }
  [[nodiscard]] __device__ std::int32_t page(std::int32_t sequence, std::int32_t key) const {
    return table[static_cast<std::int64_t>(sequence) * max_blocks + key / block_size];
  }
  [[nodiscard]] __device__ std::int64_t start(const SequenceTile& tile) const { return starts[tile.sequence]; }
  [[nodiscard]] __device__ std::int64_t offset(const SequenceTile& tile, std::int64_t key) const {
    const auto position = static_cast<std::uint32_t>(key);
    const auto size = static_cast<std::uint32_t>(block_size);
    const std::int64_t page = table[static_cast<std::int64_t>(tile.sequence) * max_blocks + position / size];
    return (page * size + position % size) * stride;
  }
};

// Keys and values in FP8 pages, whose heads have scales (core/float8_head.h).
struct Fp8PagedKeys : PagedKeys<std::uint8_t> {
  static constexpr bool kFp8 = true;
  const std::uint8_t* key_scales;  // [pages, kv_heads, block_size]
  const std::uint8_t* value_scales;
  std::int32_t kv_heads;

  // True if pages, and the scales of a page and head, can be copied as boxes (wgmma_decode.cuh).
  [[nodiscard]] __host__ __device__ bool boxed() const {
    return block_size % 16 == 0 && block_size <= 128 && 128 % block_size == 0;
  }
  // The index of a key's scale.
  [[nodiscard]] __device__ std::int64_t scale(const SequenceTile& tile, std::int64_t key, std::int32_t kv_head) const {
    const auto position = static_cast<std::uint32_t>(key);
    const auto size = static_cast<std::uint32_t>(block_size);
    const std::int64_t page = table[static_cast<std::int64_t>(tile.sequence) * max_blocks + position / size];
    return (page * kv_heads + kv_head) * size + position % size;
  }
};

// Writes the forward results of rows outside all sequences, which are zeros. All threads of a block call it.
template <class T>
__device__ void write_zero_rows(const TileQueries<T>& queries, const SequenceTile& tile, std::int32_t kv_head) {
  const std::int32_t group = queries.group();
  for (std::int64_t row = tile.first; row < tile.end; ++row) {
    const std::int64_t head = (tile.token + row / group) * queries.heads + kv_head * group + row % group;
    for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x); d < queries.head_dim;
         d += static_cast<std::int32_t>(blockDim.x)) {
      queries.o[head * queries.head_dim + d] = narrowed<T>(0);
    }
    if (threadIdx.x == 0) queries.lse[head] = 0;
  }
}

}  // namespace hone
