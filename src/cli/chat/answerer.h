// Generates the answers of a conversation: with a local model (local_answerer.h) or a server (server_answerer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "cli/chat/options.h"
#include "core/json.h"

namespace hone {

// The text that an answer has gained.
struct AnswerPiece {
  std::string_view text;
  bool is_thought = false;  // the server has separated it from the answer; a local model writes <think> instead
};

struct ChatAnswer {
  std::string text;  // without thoughts that the server has separated
  std::string cut;   // why the answer was cut and what allows more; empty if it was not
};

struct ChatTurn {
  const Json& messages;                   // an array that ends with the user's message
  const ChatOptions& options;             // as /set has changed them
  const std::set<std::string>& set_keys;  // names of the options that the user has set
  std::uint64_t index = 0;                // of the turn, from 0
};

class Answerer {
 public:
  Answerer() = default;
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;
  virtual ~Answerer() = default;

  // Generates an answer and passes its text to `show` as it comes. Ctrl+C ends it early; what there is by then is the
  // answer. Throws Error if there can be no answer.
  [[nodiscard]] virtual ChatAnswer answer(const ChatTurn& turn, const std::function<void(AnswerPiece)>& show) = 0;
  // Called when /set has changed the options.
  virtual void options_changed(const ChatOptions&) {}
};

}  // namespace hone
