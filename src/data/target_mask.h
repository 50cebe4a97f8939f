// From ranges of a text to the tokens that stand for them.
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

// [tokens]: 1 where a token of `tokens`, the encoding of `text`, overlaps one of the ranges (ascending, disjoint), as
// transformers' assistant mask has it. A tokenizer that changes the text (normalizers) is followed by encoding what
// stands before each bound.
[[nodiscard]] std::vector<std::uint8_t> target_mask(const Tokenizer& tokenizer, std::string_view text,
                                                    std::span<const TokenId> tokens, std::span<const ByteRange> ranges);

}  // namespace hone
