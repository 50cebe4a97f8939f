// Holds a conversation: keeps the messages, prints the answers and executes the commands of `hone chat`, such as
// /system and /set.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "cli/chat/answer_printer.h"
#include "cli/chat/answerer.h"
#include "core/json.h"

namespace hone {

class Conversation {
 public:
  // `set_keys`: names of the options that the user has set. `answerer` must outlive the conversation.
  Conversation(const ChatOptions& options, std::set<std::string> set_keys, Answerer& answerer);

  // Removes all messages except the system prompt.
  void clear();
  // Prints the answer to `text` and appends both to the conversation; Ctrl+C ends the answer early. On a terminal
  // (`styled`) thoughts are folded or dimmed, and the reason for a truncated answer is printed below it; otherwise the
  // reason is a warning on standard error. Throws Error if there can be no answer, and removes the question again.
  void ask(const std::string& text, bool styled);
  // Executes a command such as "/clear". Returns false if it ends the chat. Throws Error if the command is wrong.
  bool command(std::string_view line);

 private:
  void set(const std::string& text);

  ChatOptions options_;
  std::set<std::string> set_keys_;
  Answerer& answerer_;
  std::shared_ptr<Json> messages_;  // an array
  std::string thoughts_;            // of the last answer
  std::uint64_t turns_ = 0;
};

// Returns true if a typed line is a command and not a message: it begins with '/', or is quit, exit or clear.
[[nodiscard]] bool is_chat_command(std::string_view line);
// Text that /help prints: a line for each command.
[[nodiscard]] std::string_view chat_help();

}  // namespace hone
