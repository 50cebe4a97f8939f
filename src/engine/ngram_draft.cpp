#include "engine/ngram_draft.h"

#include <algorithm>
#include <bit>

namespace hone {

namespace {

// A collision costs a wrong proposal.
std::uint64_t hash_of_ngram(std::span<const TokenId> tokens) {
  std::uint64_t hash = tokens.size();
  for (const TokenId token : tokens) {
    hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(token)) * 0x9e3779b97f4a7c15U;
  }
  return hash;
}

}  // namespace

std::vector<TokenId> NgramDraft::propose(std::span<const TokenId> tokens, std::int64_t count) {
  for (; indexed_ + 1 < tokens.size(); ++indexed_) {
    const std::span<const TokenId> before = tokens.first(indexed_ + 1);
    for (std::size_t n = kShortest; n <= std::min(kLongest, before.size()); ++n) {
      after_[hash_of_ngram(before.last(n))] = before.size();
    }
  }
  for (std::size_t n = std::min(kLongest, tokens.size()); n >= kShortest; --n) {
    const auto found = after_.find(hash_of_ngram(tokens.last(n)));
    if (found == after_.end()) continue;
    std::vector<TokenId> draft;
    const std::span<const TokenId> followed = tokens.subspan(found->second);
    for (std::size_t i = 0; std::ssize(draft) < count; ++i) draft.push_back(followed[i % followed.size()]);
    return draft;
  }
  return {};
}

}  // namespace hone
