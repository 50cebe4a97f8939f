// Responses of POST /v1/completions.
// Source: https://platform.openai.com/docs/api-reference/completions
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_head.h"
#include "serve/answer_sink.h"

namespace hone {

// The prompt with which a choice begins (the parameter echo).
struct EchoedPrompt {
  std::string text;
  std::vector<TokenId> tokens = {};  // empty if the request asks for no log-probabilities
};

class TextForm : public AnswerForm {
 public:
  // `begins`: [choices], or empty if they begin with nothing.
  TextForm(AnswerHead head, std::vector<EchoedPrompt> begins) : head_(std::move(head)), begins_(std::move(begins)) {}
  [[nodiscard]] std::string whole(const std::vector<AnswerPart>& choices) const override;
  [[nodiscard]] std::string part(std::size_t index, bool first, const AnswerPart& part) override;
  [[nodiscard]] std::string end(const std::vector<AnswerPart>& choices) override;

 private:
  [[nodiscard]] Json body(Json choices) const;
  [[nodiscard]] std::string name_of(TokenId token) const;  // in log-probabilities
  // Returns a choice with the text and the log-probabilities of a part. first: it is the choice's first, which begins
  // with the echoed prompt. offset: bytes of the choice's text before this part's tokens; advanced to their end.
  [[nodiscard]] Json choice(std::size_t index, const AnswerPart& part, bool first, std::size_t& offset) const;
  // Appends a token to the lists of logprobs; the first token of a prompt has no log-probability. tops: as in
  // AnswerPart, of this token; null: not listed.
  void add_token(Json& logprobs, TokenId token, std::optional<float> logp, const std::vector<TokenLogprob>* tops,
                 std::size_t offset) const;
  // Appends the tokens of an echoed prompt. Special tokens that its text does not contain take no bytes of it.
  void add_prompt(Json& logprobs, const EchoedPrompt& prompt, const AnswerPart& part) const;

  AnswerHead head_;
  std::vector<EchoedPrompt> begins_;
  std::vector<std::size_t> offsets_;  // [choices] of the tokens of a stream
};

}  // namespace hone
