// Responses of POST /v1/chat/completions.
// Source: https://platform.openai.com/docs/api-reference/chat
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_head.h"
#include "serve/answer_sink.h"

namespace hone {

class ChatForm : public AnswerForm {
 public:
  explicit ChatForm(AnswerHead head) : head_(std::move(head)) {}
  [[nodiscard]] std::string whole(const std::vector<AnswerPart>& choices) const override;
  [[nodiscard]] std::string part(std::size_t index, bool first, const AnswerPart& part) override;
  [[nodiscard]] std::string end(const std::vector<AnswerPart>& choices) override;

 private:
  // An event with one choice: a delta, and the tokens of a part as the request asks for them.
  [[nodiscard]] std::string chunk(std::size_t index, const Json& delta, const AnswerPart& part,
                                  const Json& finish_reason) const;
  [[nodiscard]] Json logprobs_of(const AnswerPart& part) const;

  AnswerHead head_;
};

}  // namespace hone
