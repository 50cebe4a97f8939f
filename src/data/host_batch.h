// A micro-batch in host memory: documents end to end, without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/example_set.h"

namespace hone {

// Successive tokens of a document that one rank of a context group computes.
struct ContextPiece {
  std::int32_t rank = 0;
  std::int32_t document = 0;
  std::int32_t token = 0;   // number of the first one in the micro-batch
  std::int32_t start = 0;   // its position in the document
  std::int32_t tokens = 0;  // at least 1

  bool operator==(const ContextPiece&) const = default;
};

// The division of a micro-batch's tokens over a context group, of which this process is one rank.
struct ContextShare {
  int rank = 0;
  int ranks = 1;
  std::vector<ContextPiece> pieces;  // of all ranks, in the order of tokens

  bool operator==(const ContextShare&) const = default;
};

// Documents are laid end to end. Attention is restricted to [cu_seqlens[d], cu_seqlens[d + 1]).
struct HostBatch {
  std::vector<TokenId> tokens;                 // [tokens]
  std::vector<TokenId> targets;                // [tokens]: the next token of the document, -1 where there is none
  std::vector<std::int32_t> positions;         // [tokens]: counts from 0 in every document
  std::vector<std::int32_t> cu_seqlens = {0};  // [documents + 1]
  std::vector<float> loss_weights;             // [tokens]: 1 where the loss counts the target, otherwise 0
  std::int64_t target_tokens = 0;              // sum of loss_weights
  // Set if the arrays of [tokens] and the number of targets are those of one rank's tokens (data/context_share.h).
  std::optional<ContextShare> context = std::nullopt;

  [[nodiscard]] std::int64_t token_count() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t document_count() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
  bool operator==(const HostBatch&) const = default;
};

// Decides whether the last token of a part has the example's next token as its target, although that token is after the
// end of the part.
enum class LookAhead { kNo, kYes };

// Appends tokens [begin, begin + length) of an example as one document.
void append_document(HostBatch& batch, const ExampleView& example, std::int64_t begin, std::int64_t length,
                     LookAhead look_ahead);
// Appends the documents of `more`.
void append_batch(HostBatch& batch, const HostBatch& more);
// Returns the documents [begin, end) of a batch.
[[nodiscard]] HostBatch documents_of(const HostBatch& batch, std::size_t begin, std::size_t end);

}  // namespace hone
