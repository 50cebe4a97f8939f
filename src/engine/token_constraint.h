// The tokens that a grammar allows next in one completion.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace hone {

// The reasoning of a completion, <think> ... </think>, is not part of what the grammar describes. In it every token is
// allowed except those that end the completion.
class TokenConstraint {
 public:
  // `tokenizer` must outlive the object. `vocab_size` is that of the logits.
  TokenConstraint(const Tokenizer& tokenizer, const Constraint& constraint, std::span<const TokenId> stop_tokens,
                  std::int64_t vocab_size);

  // Takes the next token of the completion and computes the mask of the one after it. If mask() does not allow the
  // token, the constraint is void.
  void accept(TokenId token);
  // The mask of the next token, as in ops/adjust_logits: [mask_words(vocab_size)].
  [[nodiscard]] std::span<const std::int32_t> mask() const { return mask_; }
  // Returns true if no token may come next: the text is complete and no stop token exists, or has been accepted.
  [[nodiscard]] bool is_exhausted() const { return allowed_ == 0; }
  // Returns true if a token was accepted that was not allowed.
  [[nodiscard]] bool is_void() const { return void_; }

 private:
  enum class Phase : std::uint8_t { kStart, kReasoning, kGrammar };

  void accept_reasoning(std::string_view bytes);
  void fill_mask();
  void fill_reasoning_mask();
  void set_allowed(TokenId token, bool allowed);

  const Tokenizer* tokenizer_;
  std::vector<TokenId> stop_tokens_;
  Phase phase_;
  TokenId opening_ = -1;  // the token <think>, if the completion may begin with it
  TokenMatcher matcher_;
  std::string tag_;                 // the beginning of </think> with which the reasoning ends by now
  std::vector<std::int32_t> mask_;  // [mask_words(vocab_size)]
  std::int64_t vocab_size_;
  std::int64_t allowed_ = 0;  // bits of mask_ that are set
  bool void_ = false;
};

}  // namespace hone
