// Divides the tokens of a micro-batch over the ranks of a context group, so that each has as many tokens and, in causal
// attention, as much work as the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/host_batch.h"

namespace hone {

// Returns the pieces of all ranks in the order of tokens, which are the documents of cu_seqlens [documents + 1].
//
// A document is cut into 2 x ranks chunks, of which rank r has chunk r and chunk 2 x ranks - 1 - r: a token's work
// grows with its position, and the two have together as much as those of any other rank. Documents that are too short
// for chunks of 64 tokens are cut together, as if they were one. Tokens that are left go to the ranks that have fewest,
// so that the numbers of tokens differ by one at most. A rank has at most two pieces for each document.
[[nodiscard]] std::vector<ContextPiece> cut_for_context(std::span<const std::int32_t> cu_seqlens, int ranks);

// Returns what a rank has of a micro-batch: the arrays of its tokens, the number of their targets, and the documents of
// the whole micro-batch.
[[nodiscard]] HostBatch context_share(const HostBatch& whole, int rank, int ranks);

// Returns the pairs of a token and itself or an earlier token of its document that a rank computes in attention.
[[nodiscard]] double attention_pairs(std::span<const ContextPiece> pieces, int rank);

}  // namespace hone
