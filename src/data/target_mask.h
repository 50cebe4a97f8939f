// Converts ranges of a text into a mask of the tokens that encode them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

using ByteRange = std::pair<std::size_t, std::size_t>;  // [begin, end)

// Returns [tokens]: 1 for each token of `tokens` (the encoding of `text`) that overlaps one of the ranges (ascending,
// disjoint), as in transformers' assistant mask. If the tokenizer changes the text (normalizers), each bound is located
// by encoding the text before it.
[[nodiscard]] std::vector<std::uint8_t> target_mask(const Tokenizer& tokenizer, std::string_view text,
                                                    std::span<const TokenId> tokens, std::span<const ByteRange> ranges);

}  // namespace hone
