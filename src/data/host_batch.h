// A micro-batch on the host, without a single token of padding.
#pragma once

#include <cstdint>
#include <vector>

#include "data/example_set.h"

namespace hone {

// Documents end to end. Attention stays inside [cu_seqlens[d], cu_seqlens[d + 1]).
struct HostBatch {
  std::vector<TokenId> tokens;                 // [tokens]
  std::vector<TokenId> targets;                // [tokens]: the document's next token, -1 where there is none
  std::vector<std::int32_t> positions;         // [tokens], from 0 in every document
  std::vector<std::int32_t> cu_seqlens = {0};  // [documents + 1]
  std::vector<float> loss_weights;             // [tokens]: 1 where the target is to be learned, else 0
  std::int64_t target_tokens = 0;              // the sum of loss_weights

  [[nodiscard]] std::int64_t token_count() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t document_count() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
  bool operator==(const HostBatch&) const = default;
};

// Whether the last token of a part is trained on the example's next token although that lies behind the part's end.
enum class LookAhead { no, yes };

// Appends tokens [begin, begin + length) of an example as one document.
void append_document(HostBatch& batch, const ExampleView& example, std::int64_t begin, std::int64_t length,
                     LookAhead look_ahead);

}  // namespace hone
