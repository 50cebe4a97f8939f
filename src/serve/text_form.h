// Responses of POST /v1/completions.
// Source: https://platform.openai.com/docs/api-reference/completions
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "serve/answer_head.h"
#include "serve/answer_sink.h"

namespace hone {

class TextForm : public AnswerForm {
 public:
  // `begins`: [choices] the texts with which the choices begin; empty if they begin with nothing.
  TextForm(AnswerHead head, std::vector<std::string> begins) : head_(std::move(head)), begins_(std::move(begins)) {}
  [[nodiscard]] std::string whole(const std::vector<AnswerPart>& choices) const override;
  [[nodiscard]] std::string part(std::size_t index, bool first, const AnswerPart& part) override;
  [[nodiscard]] std::string end(const std::vector<AnswerPart>& choices) override;

 private:
  [[nodiscard]] Json body(Json choices) const;
  [[nodiscard]] std::string name_of(TokenId token) const;  // in log-probabilities
  // `offset`: bytes of the choice's text before this part. Advanced to its end.
  [[nodiscard]] Json choice(std::size_t index, const std::string& text, const AnswerPart& part,
                            std::size_t& offset) const;

  AnswerHead head_;
  std::vector<std::string> begins_;
  std::vector<std::size_t> offsets_;  // [choices] of the tokens of a stream
};

}  // namespace hone
