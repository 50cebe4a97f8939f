// Entries of ops/adjust_logits: the tokens whose logits a request changes, and how.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"

namespace hone {

class LogitEntries {
 public:
  // The entries before a token is generated.
  LogitEntries(const SamplingParams& sampling, std::span<const TokenId> prompt);

  // Counts a generated token, if the request has penalties.
  void add_generated(TokenId token);

  // Returns true if generated tokens change the entries.
  [[nodiscard]] bool counts_tokens() const { return counts_tokens_; }
  // Returns true if tokens without an entry may not be drawn.
  [[nodiscard]] bool restricts() const { return restricts_; }
  // The entries, each token once, in the order of their first occurrence.
  [[nodiscard]] std::span<const TokenId> ids() const { return ids_; }
  [[nodiscard]] std::span<const std::int32_t> occurrences() const { return occurrences_; }
  [[nodiscard]] std::span<const float> biases() const { return biases_; }

 private:
  // Returns the place of a token's entry, which is added if there is none.
  std::size_t place_of(TokenId token, float bias);

  bool counts_tokens_;
  bool restricts_;
  std::unordered_map<TokenId, std::size_t> places_;
  std::vector<TokenId> ids_;               // [entries]
  std::vector<std::int32_t> occurrences_;  // [entries]
  std::vector<float> biases_;              // [entries]
};

}  // namespace hone
