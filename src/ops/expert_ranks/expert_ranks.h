// Experts that are divided over the ranks of an expert group (Lepikhin et al., "GShard: Scaling giant models with
// conditional computation and automatic sharding", 2020): the rows of all ranks are sent to the rank that has their
// expert, and what it computes of them is sent back. No row is dropped.
//
// Rank r of K has the experts r E/K to (r + 1) E/K - 1 of E. It receives rows ordered by expert, then by the rank that
// they come from, then as that rank has them (by token), so that results repeat bit for bit.
//
// The ranks of a group must run the same of these operations in the same order, with the same types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct ExpertRanksStartOut {
  enum : std::size_t { starts, place, own, rows };
};
struct ExpertRanksSendIn {
  enum : std::size_t { x, position, starts, place };
};

struct ExpertRanksAttributes {
  std::int64_t experts = 1;  // of all ranks
  std::int64_t ranks = 1;    // of the group; divides the experts
  std::string count;         // name of the count of received rows
  // Name of the count of the rows to send if they are those of a part of the experts (expert_order_part), which
  // `experts` are then; empty: a rank has top_k rows for each of its tokens.
  std::string own_count;

  template <class Visitor>
  void fields(Visitor& v) {
    v("experts", experts);
    v("ranks", ranks);
    v("count", count);
    v("own_count", own_count);
  }
};

// The rows that the ranks of a group have for each other, E experts, K ranks. All are made on the device.
struct ExpertRanksStart {
  Tensor starts;  // i32 [K, E + 1]: the first row of each rank for each expert, its `start`
  Tensor place;   // i32 [E/K, K]: the first received row of each expert of this rank that comes from each rank
  Tensor own;     // i32 [E/K + 1]: the first received row of each expert of this rank; the last is their number
  Tensor rows;    // i64 [1]: the number of received rows
};

// Returns the most rows that a rank can have for the experts of one rank, for the choices position i32
// [tokens, top_k]: a token chooses different experts, so that at most min(top_k, experts / ranks) of them are there. A
// rank receives at most `ranks` times as many.
[[nodiscard]] std::int64_t most_rows_to_rank(const Type& position, const ExpertRanksAttributes& attributes);

// Exchanges start i32 [E + 1] (ops/expert_order). There is no gradient.
[[nodiscard]] ExpertRanksStart exchange_starts(Tensor start, const ExpertRanksAttributes& attributes);

// Sends the rows x [top_k x tokens, n], ordered by expert, to the ranks of the experts and returns the received rows
// [COUNT, n], of the capacity ranks x most_rows_to_rank(). COUNT is attributes.count, which the program must have
// declared with that capacity and ExpertRanksStart::rows as its source. position i32 [tokens, top_k] says how many rows
// x has. The gradient is sent back.
[[nodiscard]] Tensor send_to_experts(Tensor x, Tensor position, const ExpertRanksStart& start,
                                     const ExpertRanksAttributes& attributes);
// The inverse: returns the rows [top_k x tokens, n] for the received rows y [COUNT, n].
[[nodiscard]] Tensor return_from_experts(Tensor y, Tensor position, const ExpertRanksStart& start,
                                         const ExpertRanksAttributes& attributes);

}  // namespace hone
