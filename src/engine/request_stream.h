// The client's view of a request: its completion so far and the text handed out in updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ngram_draft.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/token_bans.h"
#include "engine/token_constraint.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace hone {

class RequestStream {
 public:
  // `tokenizer` must outlive the stream. `vocab_size` is that of the logits.
  RequestStream(const Tokenizer& tokenizer, RequestId id, Request request, std::int64_t vocab_size);

  // Stores tokens that were drawn before, up to the one that completes the completion. A sequence of max_model_len
  // tokens is full.
  void begin(const DrawnTokens& begun, std::int64_t max_model_len);
  // Computes the mask of the token after `token`, which accept() will take next, if a grammar or bans restrict it. May
  // run concurrently with the same call of another stream. Throws nothing; an error ends the request.
  void follow_grammar(TokenId token) noexcept;
  [[nodiscard]] bool is_constrained() const { return constraint_.has_value() || bans_.has_value(); }

  // Stores the sampled token at `index` of the sequence, which has it or ends before it, and sets the completion's
  // finish reason. A sequence of max_model_len tokens is full.
  void accept(std::size_t index, TokenLogprob sampled, std::int64_t max_model_len);
  // Stores the most probable tokens where the token that was accepted last was drawn.
  void list(std::vector<TokenLogprob> tokens) { completion.top_logprobs.push_back(std::move(tokens)); }
  // Stores the log-probability of the prompt's token at `index`, unless the sequence was preempted and had it before.
  void accept_prompt(std::size_t index, float logp);
  // Stores the most probable tokens in the place of the prompt's token that was accepted last.
  void list_prompt(std::vector<TokenLogprob> tokens);
  // Returns at most `count` tokens that may follow. All tokens of the sequence must have been read.
  [[nodiscard]] std::vector<TokenId> propose(std::int64_t count) { return draft_.propose(sequence.tokens, count); }
  // Keeps the token that the model's layer for multi-token prediction proposes after the one that was accepted last.
  void predict(TokenId token) { prediction_ = {sequence.tokens.size(), token}; }
  // Returns that token if `count` is above 0 and it may follow the sequence.
  [[nodiscard]] std::vector<TokenId> predicted(std::int64_t count) const {
    if (count <= 0 || prediction_.index != sequence.tokens.size()) return {};
    return {prediction_.token};
  }
  // Returns the text that no earlier call returned and that can no longer become part of a stop string; valid until the
  // next accept(). Once the request has finished, returns the rest.
  [[nodiscard]] std::string_view new_text();
  [[nodiscard]] bool finished() const { return completion.finish_reason != FinishReason::kNone; }

  Sequence sequence;
  Completion completion;

 private:
  // Length in bytes of the text that can no longer become part of a stop string.
  [[nodiscard]] std::size_t safe_length() const;
  // Sets the sequence's mask.
  void set_mask();
  // Appends text and cuts it at the first stop string. Returns true if there is one.
  bool add_text(const std::string& piece);

  Detokenizer detokenizer_;
  std::optional<TokenConstraint> constraint_;
  std::optional<TokenBans> bans_;          // unset once it bans nothing any more
  std::vector<std::int32_t> banned_mask_;  // the grammar's mask without banned tokens
  std::int64_t vocab_size_;
  NgramDraft draft_;
  struct Prediction {
    std::size_t index = 0;  // in the sequence; 0: there is none
    TokenId token = 0;
  };
  Prediction prediction_;
  bool grammar_failed_ = false;
  std::size_t stops_from_ =
      0;                      // bytes of completion.text in which stop strings do not count: that of min_tokens tokens
  std::size_t released_ = 0;  // bytes of completion.text returned by new_text()
};

}  // namespace hone
