#include "engine/token_bans.h"

#include <algorithm>
#include <bit>

namespace hone {
namespace {

std::uint32_t bit_of(TokenId token) { return 1U << (static_cast<std::uint32_t>(token) % 32); }

}  // namespace

TokenBans::TokenBans(const SamplingParams& sampling, std::int64_t vocab_size)
    : min_tokens_(sampling.min_tokens),
      stop_tokens_(sampling.stop_token_ids),
      bad_words_(sampling.bad_words),
      allowed_(sampling.allowed_token_ids),
      never_(sampling.banned_token_ids),
      vocab_size_(vocab_size) {
  std::erase_if(bad_words_, [](const std::vector<TokenId>& word) { return word.empty(); });
}

void TokenBans::accept(TokenId token) {
  ++generated_;
  std::size_t longest = 0;
  for (const auto& word : bad_words_) longest = std::max(longest, word.size());
  if (longest == 0) return;
  if (last_.size() == longest) last_.erase(last_.begin());
  last_.push_back(token);
}

std::vector<TokenId> TokenBans::banned() const {
  std::vector<TokenId> tokens;
  if (generated_ < min_tokens_) tokens = stop_tokens_;
  for (const auto& word : bad_words_) {
    const std::span<const TokenId> begin = std::span(word).first(word.size() - 1);
    if (begin.size() > last_.size()) continue;
    if (std::ranges::equal(begin, std::span(last_).last(begin.size()))) tokens.push_back(word.back());
  }
  std::erase_if(tokens, [&](TokenId token) { return token < 0 || token >= vocab_size_; });
  return tokens;
}

void TokenBans::apply(std::span<std::int32_t> mask) const {
  const std::vector<std::int32_t> before(mask.begin(), mask.end());
  for (const TokenId token : banned()) {
    std::int32_t& word = mask[static_cast<std::size_t>(token / 32)];
    word = std::bit_cast<std::int32_t>(std::bit_cast<std::uint32_t>(word) & ~bit_of(token));
  }
  if (!leaves_some(mask)) std::ranges::copy(before, mask.begin());
}

bool TokenBans::leaves_some(std::span<const std::int32_t> mask) const {
  const auto is_left = [&](TokenId token) {
    const auto word = std::bit_cast<std::uint32_t>(mask[static_cast<std::size_t>(token / 32)]);
    return (word & bit_of(token)) != 0 && std::ranges::find(never_, token) == never_.end();
  };
  if (!allowed_.empty()) return std::ranges::any_of(allowed_, is_left);
  for (TokenId token = 0; token < vocab_size_; ++token)  // bits after the vocabulary do not count
    if (is_left(token)) return true;
  return false;
}

}  // namespace hone
