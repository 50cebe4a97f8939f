// The tokens that a request may not draw next, by how it has continued so far: stop tokens before min_tokens, and the
// last tokens of bad words.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace hone {

class TokenBans {
 public:
  // `vocab_size` is that of the logits.
  TokenBans(const SamplingParams& sampling, std::int64_t vocab_size);

  void accept(TokenId token);
  // Returns true if a token may be banned now or later.
  [[nodiscard]] bool is_active() const { return generated_ < min_tokens_ || !bad_words_.empty(); }
  // Clears the bits of banned tokens in a mask as in ops/adjust_logits, [mask_words(vocab_size)]. If that leaves no
  // token, the mask stays as it was: what a grammar demands is more than what is banned.
  void apply(std::span<std::int32_t> mask) const;

 private:
  [[nodiscard]] std::vector<TokenId> banned() const;
  [[nodiscard]] bool leaves_some(std::span<const std::int32_t> mask) const;

  std::int64_t min_tokens_;
  std::vector<TokenId> stop_tokens_;
  std::vector<std::vector<TokenId>> bad_words_;
  std::vector<TokenId> allowed_;  // SamplingParams::allowed_token_ids
  std::vector<TokenId> never_;    // SamplingParams::banned_token_ids
  std::int64_t vocab_size_;
  std::int64_t generated_ = 0;
  std::vector<TokenId> last_;  // the last generated tokens, at most as many as the longest bad word has
};

}  // namespace hone
