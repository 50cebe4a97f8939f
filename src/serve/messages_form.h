// Responses of POST /v1/messages.
// Source: https://docs.anthropic.com/en/api/messages-streaming
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/answer_head.h"
#include "serve/answer_sink.h"

namespace hone {

class MessagesForm : public AnswerForm {
 public:
  // `sampling` has the stop strings and stop tokens of the request.
  MessagesForm(AnswerHead head, SamplingParams sampling) : head_(std::move(head)), sampling_(std::move(sampling)) {}
  [[nodiscard]] std::string whole(const std::vector<AnswerPart>& choices) const override;
  [[nodiscard]] std::string begin() override;
  [[nodiscard]] std::string part(std::size_t index, bool first, const AnswerPart& part) override;
  [[nodiscard]] std::string end(const std::vector<AnswerPart>& choices) override;
  [[nodiscard]] std::string failure_body(int status, std::string_view message) const override;
  [[nodiscard]] std::string failure_event(int status, std::string_view message) const override;

 private:
  enum class Block : std::uint8_t { kNone, kThinking, kText };

  // Events that end the open block, if there is one, and begin another.
  [[nodiscard]] std::string change_to(Block block);
  [[nodiscard]] std::string delta(const Json& delta) const;
  // {"stop_reason", "stop_sequence"}.
  [[nodiscard]] Json stop_of(const AnswerPart& choice) const;
  [[nodiscard]] Json message(Json content, const Json& stop, std::int64_t output_tokens) const;

  AnswerHead head_;
  SamplingParams sampling_;
  Block open_ = Block::kNone;
  std::int64_t block_ = -1;  // index of the last block
};

// The error object of this API.
[[nodiscard]] std::string messages_error_body(std::string_view message, int status);

}  // namespace hone
