#include "data/target_mask.h"

namespace hone {
namespace {

std::size_t byte_count(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  std::size_t count = 0;
  for (const TokenId token : tokens) count += tokenizer.token_bytes(token).size();
  return count;
}

// Returns true if the tokens' bytes are exactly `text`.
bool spells(const Tokenizer& tokenizer, std::span<const TokenId> tokens, std::string_view text) {
  for (const TokenId token : tokens) {
    const std::string_view bytes = tokenizer.token_bytes(token);
    if (!text.starts_with(bytes)) return false;
    text.remove_prefix(bytes.size());
  }
  return text.empty();
}

}  // namespace

std::vector<std::uint8_t> target_mask(const Tokenizer& tokenizer, std::string_view text,
                                      std::span<const TokenId> tokens, std::span<const ByteRange> ranges) {
  std::vector<ByteRange> bounds(ranges.begin(), ranges.end());
  if (!spells(tokenizer, tokens, text)) {
    for (auto& [begin, end] : bounds) {
      begin = byte_count(tokenizer, tokenizer.encode(text.substr(0, begin)));
      end = byte_count(tokenizer, tokenizer.encode(text.substr(0, end)));
    }
  }
  std::vector<std::uint8_t> mask(tokens.size(), 0);
  std::size_t at = 0;
  auto range = bounds.begin();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::size_t next = at + tokenizer.token_bytes(tokens[t]).size();
    while (range != bounds.end() && range->second <= at) ++range;
    if (range == bounds.end()) break;
    mask[t] = range->first < next ? 1 : 0;
    at = next;
  }
  return mask;
}

}  // namespace hone
