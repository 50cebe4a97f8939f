// The set of token ids that occur in a sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

class OccurredIds {
 public:
  // An empty set of ids from 0 to vocab_size - 1.
  explicit OccurredIds(std::int64_t vocab_size) : is_in_(static_cast<std::size_t>(vocab_size), false) {}

  void add(TokenId id) {
    if (is_in_[static_cast<std::size_t>(id)]) return;
    is_in_[static_cast<std::size_t>(id)] = true;
    ids_.push_back(id);
  }
  // Each id once, in the order of first occurrence.
  [[nodiscard]] std::span<const TokenId> ids() const { return ids_; }

 private:
  std::vector<bool> is_in_;  // [vocab_size]
  std::vector<TokenId> ids_;
};

}  // namespace hone
