// The ids that occur in a sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

class OccurredIds {
 public:
  // Ids below `vocab_size` may be added.
  explicit OccurredIds(std::int64_t vocab_size) : is_in_(static_cast<std::size_t>(vocab_size), false) {}

  void add(TokenId id) {
    if (is_in_[static_cast<std::size_t>(id)]) return;
    is_in_[static_cast<std::size_t>(id)] = true;
    ids_.push_back(id);
  }
  // Each once, in the order in which they first occurred.
  [[nodiscard]] std::span<const TokenId> ids() const { return ids_; }

 private:
  std::vector<bool> is_in_;
  std::vector<TokenId> ids_;
};

}  // namespace hone
