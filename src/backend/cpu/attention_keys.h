// Where the forward pass of attention on the CPU finds keys and values, a tile at a time: in rows, in pages, or in
// pages of latent rows. Each source has start(), the position of a sequence's first query, and keys() and values() of
// the `count` positions from `first` on; `gathered` [kKeyTile, head_dim] is scratch memory of the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_common.h"
#include "core/float8_head.h"

namespace hone {

// Keys or values of one tile: [keys, head_dim], `stride` elements from one row to the next.
template <class T>
struct TileRows {
  const T* data;
  std::int64_t stride;
};

// Source of keys and values in rows, packed like the queries or in the order of documents.
template <class T>
struct PlainKeys {
  const AttentionForwardArgs<T>& args;

  [[nodiscard]] std::int64_t start(std::int64_t sequence) const {
    return args.pieces.starts.empty() ? 0 : args.pieces.starts[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] TileRows<T> rows(const HeadRows<const T>& from, std::int64_t sequence, std::int64_t head,
                                 std::int64_t first) const {
    const auto& queries = args.queries;
    const auto at = static_cast<std::size_t>(sequence);
    const auto first_rows = args.pieces.key_rows.empty() ? queries.cu_seqlens : args.pieces.key_rows;
    const std::int64_t token = first_rows[at] + first;
    return {from.data + token * from.stride + head * queries.shape.head_dim, from.stride};
  }
  [[nodiscard]] TileRows<T> keys(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t, T*) const {
    return rows(args.k, sequence, head, first);
  }
  [[nodiscard]] TileRows<T> values(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t,
                                   T*) const {
    return rows(args.v, sequence, head, first);
  }
};

// The row of a position that has a page, counted over all pages.
template <class Args>
[[nodiscard]] std::int64_t page_slot(const Args& args, std::int64_t sequence, std::int64_t position) {
  const std::int64_t page =
      args.block_table[static_cast<std::size_t>(sequence * args.max_blocks + position / args.block_size)];
  HONE_ASSERT(page >= 0 && page < args.num_blocks, "page ", page, " of ", args.num_blocks);
  return page * args.block_size + position % args.block_size;
}

// Source of keys and values in pages, which are gathered one tile at a time.
template <class T>
struct PagedKeyRows {
  const PagedAttentionArgs<T>& args;

  [[nodiscard]] std::int64_t start(std::int64_t sequence) const {
    return args.start[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] const T* row(const T* cache, std::int64_t sequence, std::int64_t head, std::int64_t position) const {
    const AttentionShape& shape = args.queries.shape;
    return cache + (page_slot(args, sequence, position) * shape.num_kv_heads + head) * shape.head_dim;
  }
  // Copies rows. Meanwhile the row of the next tile at the same place is fetched into the L2 cache for each row: rows
  // of a head are too far apart for the processor to foresee.
  [[nodiscard]] TileRows<T> rows(const T* cache, std::int64_t sequence, std::int64_t head, std::int64_t first,
                                 std::int64_t count, T* gathered) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    const std::int64_t head_dim = args.queries.shape.head_dim;
    const std::int64_t stride = args.queries.shape.num_kv_heads * head_dim;
    const std::int64_t end = start(sequence) + 1;
    T* to = gathered;
    for (std::int64_t position = first; position < first + count;) {
      const T* from = row(cache, sequence, head, position);
      const std::int64_t later = position + kKeyTile;
      const T* next = later < end ? row(cache, sequence, head, later) : from;
      const std::int64_t rows = std::min(args.block_size - position % args.block_size, first + count - position);
      for (std::int64_t i = 0; i < rows; ++i, from += stride, next += stride, to += head_dim) {
        for (std::int64_t d = 0; d < head_dim; d += kLine) __builtin_prefetch(next + d, 0, 2);
        for (std::int64_t d = 0; d < head_dim; d += 8) std::memcpy(to + d, from + d, 8 * sizeof(T));
      }
      position += rows;
    }
    return {gathered, head_dim};
  }
  // Widens rows of FP8 pages, which is exact.
  [[nodiscard]] TileRows<T> rows(const Fp8Heads& from, std::int64_t sequence, std::int64_t head, std::int64_t first,
                                 std::int64_t count, T* gathered) const {
    const AttentionShape& shape = args.queries.shape;
    const std::int64_t head_dim = shape.head_dim;
    if constexpr (!std::is_same_v<T, double>) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = page_slot(args, sequence, first + i);
        const std::int64_t page_head = at / args.block_size * shape.num_kv_heads + head;
        dequantize_head(from.bytes + (at * shape.num_kv_heads + head) * head_dim,
                        from.scales[page_head * args.block_size + at % args.block_size], head_dim,
                        gathered + i * head_dim);
      }
    }
    return {gathered, head_dim};
  }
  [[nodiscard]] TileRows<T> keys(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
                                 T* gathered) const {
    if (args.fp8_keys.bytes != nullptr) return rows(args.fp8_keys, sequence, head, first, count, gathered);
    return rows(args.k_cache, sequence, head, first, count, gathered);
  }
  [[nodiscard]] TileRows<T> values(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
                                   T* gathered) const {
    if (args.fp8_values.bytes != nullptr) return rows(args.fp8_values, sequence, head, first, count, gathered);
    return rows(args.v_cache, sequence, head, first, count, gathered);
  }
};

// Source of latent rows in pages. A row is the key, and its first part the value, which is where keys() has put it.
template <class T>
struct LatentKeys {
  const LatentAttentionArgs<T>& args;

  [[nodiscard]] std::int64_t start(std::int64_t sequence) const {
    return args.start[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] TileRows<T> keys(std::int64_t sequence, std::int64_t, std::int64_t first, std::int64_t count,
                                 T* gathered) const {
    const std::int64_t width = args.queries.shape.head_dim;
    for (std::int64_t position = first; position < first + count;) {
      const std::int64_t rows = std::min(args.block_size - position % args.block_size, first + count - position);
      std::copy_n(args.cache + page_slot(args, sequence, position) * width, rows * width,
                  gathered + (position - first) * width);
      position += rows;
    }
    return {gathered, width};
  }
  [[nodiscard]] TileRows<T> values(std::int64_t, std::int64_t, std::int64_t, std::int64_t, T* gathered) const {
    return {gathered, args.queries.shape.head_dim};
  }
};

}  // namespace hone
