// The query tiles of a block of keys of the backward pass on Hopper (wgmma_backward.cuh), and the order in which the
// block takes them: from the last position to the first, and all query heads of the group for each tile. A step of a
// tile and a head is a turn.
//
// A tile has up to kWgmmaQueries rows: those of sequence_tile(query sequences, 1, kWgmmaQueries, index). A block takes
// the tiles whose last row sees its first key, which are a prefix of what a block with smaller keys takes.
#pragma once

#include <cstdint>

#include "ops/attention/tiles.cuh"

namespace hone {

// Capacities of rows and sequences, and the query heads.
struct WgmmaBackwardSizes {
  std::int64_t rows, sequences;          // of queries
  std::int64_t key_rows, key_sequences;  // of keys
  std::int64_t heads, head_dim;
};

inline constexpr int kWgmmaQueries = 64;  // query rows of a tile

// Rows and sequences of the keys, whose gradients have the same stride.
struct BackwardKeys {
  Sequences sequences;
  std::int64_t stride;
};

// Queries in the rows of their keys.
struct PackedQueries {
  struct Turn {
    int tile, head, first_head, end_head;
    int token, first_index;  // of tile 0

    __device__ void next() {
      if (++head < end_head) return;
      head = first_head;
      --tile;
    }
    [[nodiscard]] __device__ int index() const { return first_index + tile; }
    // The row of the tile's first query, and its position in the sequence of the keys.
    [[nodiscard]] __device__ int row() const { return token + tile * kWgmmaQueries; }
    [[nodiscard]] __device__ int position() const { return tile * kWgmmaQueries; }
  };

  // Number of tiles of a block of keys.
  [[nodiscard]] __device__ int tiles(const SequenceTile& keys) const {
    return (keys.rows + kWgmmaQueries - 1) / kWgmmaQueries - keys.first / kWgmmaQueries;
  }
  // The first turn of the block.
  [[nodiscard]] __device__ Turn turn(const SequenceTile& keys, int first_head, int end_head) const {
    const auto token = static_cast<int>(keys.token);
    return {(keys.rows + kWgmmaQueries - 1) / kWgmmaQueries - 1,
            first_head,
            first_head,
            end_head,
            token,
            token / kWgmmaQueries + keys.sequence};
  }
};

// Queries of pieces of documents, whose keys are in separate rows. The sequences of the queries are the pieces, those
// of the keys the documents. The pieces of a document follow each other in ascending order of positions.
struct PieceQueries {
  const std::int32_t* bounds;           // [pieces + 1]: the first row of each piece
  const std::int32_t* starts;           // [pieces]: the position of its first row in its document
  const std::int32_t* document_pieces;  // [documents + 1]: the first piece of each document

  struct Turn {
    const std::int32_t* bounds;
    const std::int32_t* starts;
    int piece, first_piece;
    int tile, head, first_head, end_head;  // tile: of the piece
    int first_row, start;                  // of the piece

    __device__ void next() {
      if (++head < end_head) return;
      head = first_head;
      if (--tile >= 0) return;
      --piece;
      enter();
    }
    // Goes to the last tile of the piece, or of the last one before it that has any.
    __device__ void enter() {
      for (; piece >= first_piece; --piece) {
        first_row = bounds[piece];
        start = starts[piece];
        tile = (bounds[piece + 1] - first_row + kWgmmaQueries - 1) / kWgmmaQueries - 1;
        if (tile >= 0) return;
      }
    }
    [[nodiscard]] __device__ int index() const { return first_row / kWgmmaQueries + piece + tile; }
    [[nodiscard]] __device__ int row() const { return first_row + tile * kWgmmaQueries; }
    [[nodiscard]] __device__ int position() const { return start + tile * kWgmmaQueries; }
  };

  [[nodiscard]] __device__ int tiles(const SequenceTile& keys) const {
    int count = 0;
    for (int piece = document_pieces[keys.sequence]; piece < document_pieces[keys.sequence + 1]; ++piece) {
      const int rows = bounds[piece + 1] - bounds[piece];
      const int before = max(keys.first - starts[piece], 0);  // rows that see none of the keys
      if (before < rows) count += (rows + kWgmmaQueries - 1) / kWgmmaQueries - before / kWgmmaQueries;
    }
    return count;
  }
  [[nodiscard]] __device__ Turn turn(const SequenceTile& keys, int first_head, int end_head) const {
    Turn turn{.bounds = bounds,
              .starts = starts,
              .piece = document_pieces[keys.sequence + 1] - 1,
              .first_piece = document_pieces[keys.sequence],
              .tile = -1,
              .head = first_head,
              .first_head = first_head,
              .end_head = end_head,
              .first_row = 0,
              .start = 0};
    turn.enter();
    return turn;
  }
};

}  // namespace hone
