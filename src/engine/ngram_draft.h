// Proposes tokens that may follow a sequence: those that followed the last occurrence of its last tokens (prompt
// lookup, Saxena, 2023). Proposals that the model would not draw are dropped by the engine, so they change no result.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

class NgramDraft {
 public:
  // Returns at most `count` tokens for a sequence, of which an earlier call had a prefix. If the last occurrence is so
  // near that fewer tokens followed it, what followed is repeated. Takes time in proportion to the new tokens.
  [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> tokens, std::int64_t count);

 private:
  static constexpr std::size_t kLongest = 4;   // tokens that are looked up; the longest match counts
  static constexpr std::size_t kShortest = 2;  // a single token repeats too often by chance

  std::size_t indexed_ = 0;  // tokens whose n-grams, but for those that end at the last token, are in `after_`
  std::unordered_map<std::uint64_t, std::size_t> after_;  // hash of an n-gram: index of the token after its last one
};

}  // namespace hone
