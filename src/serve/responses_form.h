// Responses of POST /v1/responses.
// Source: https://platform.openai.com/docs/api-reference/responses-streaming
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "serve/answer_head.h"
#include "serve/answer_sink.h"

namespace hone {

class ResponsesForm : public AnswerForm {
 public:
  ResponsesForm(AnswerHead head, std::shared_ptr<const Json> echoed);
  ~ResponsesForm() override;
  [[nodiscard]] std::string whole(const std::vector<AnswerPart>& choices) const override;
  [[nodiscard]] std::string begin() override;
  [[nodiscard]] std::string part(std::size_t index, bool first, const AnswerPart& part) override;
  [[nodiscard]] std::string end(const std::vector<AnswerPart>& choices) override;
  [[nodiscard]] std::string failure_event(int status, std::string_view message) const override;

 private:
  enum class Item : std::uint8_t { kNone, kReasoning, kMessage };

  // An event of the stream; it gets the next number.
  [[nodiscard]] std::string event(std::string_view type, const Json& fields);
  // Events that end the open item, if there is one, and begin another.
  [[nodiscard]] std::string change_to(Item item);
  [[nodiscard]] std::string text_delta(const std::string& text);
  [[nodiscard]] Json response(std::string_view status, Json output, const AnswerPart* choice) const;

  AnswerHead head_;
  std::shared_ptr<const Json> echoed_;
  std::int64_t number_ = 0;  // of the next event
  Item open_ = Item::kNone;
  std::string open_id_;
  std::string open_text_;
  std::unique_ptr<Json> output_;  // the items that have ended
};

}  // namespace hone
