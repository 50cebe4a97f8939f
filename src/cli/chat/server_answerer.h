// Answers through a server with OpenAI's API.
#pragma once

#include <string>

#include "cli/chat/answerer.h"

namespace hone {

class ServerAnswerer : public Answerer {
 public:
  // Looks up the model if the options name none. Throws Error, with one line, if `server` is no URL, does not answer or
  // refuses the key.
  explicit ServerAnswerer(const ChatOptions& options);

  [[nodiscard]] ChatAnswer answer(const ChatTurn& turn, const std::function<void(AnswerPiece)>& show) override;
  [[nodiscard]] const std::string& model() const { return model_; }

 private:
  // Returns the body of a request: the messages, and the sampling keys that the user has set.
  [[nodiscard]] std::string body_of(const ChatTurn& turn) const;

  std::string url_;  // of the API
  std::string key_;
  std::string model_;
};

}  // namespace hone
