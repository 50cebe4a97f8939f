// hone chat: a conversation with a local model.
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "cli/chat/conversation.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/message_lines.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/strings.h"
#include "core/terminal.h"

namespace hone {
namespace {

constexpr const char* kStopped = "(stopped; press Ctrl+C again or Ctrl+D to leave)\n";
constexpr const char* kLeaveHint = "(press Ctrl+C again or Ctrl+D to leave)\n";

// Answers a message or executes a command. Returns false if it ends the chat.
bool take_message(Conversation& conversation, const TypedMessage& message) {
  try {
    if (message.may_be_command && is_chat_command(message.text)) return conversation.command(message.text);
    conversation.ask(message.text, true);
    if (interrupted() && !termination_requested()) print_answer(kStopped);
  } catch (const Error& error) {
    print_answer(text_of(error.what(), "\n"));
  }
  return true;
}

int converse(Conversation& conversation) {
  LineEditor editor;
  MessageLines lines;
  bool leave_on_interrupt = false;  // the last key was Ctrl+C, so another one leaves
  print_answer("Ask something; /help lists the commands.\n");
  catch_interrupts("");  // no notice: Ctrl+C does not end the chat, and kLeaveHint explains it
  for (;;) {
    const TypedLine line = editor.read(lines.has_begun() ? L". " : L"> ");
    if (termination_requested()) throw Interrupted();
    clear_interrupt();
    // Ctrl+C drops what was typed. The second one in a row on an empty line leaves.
    if (line.kind == TypedLine::Kind::kInterrupt) {
      const bool drops = !line.was_empty || lines.has_begun();
      print_answer("\n");
      if (!drops && leave_on_interrupt) return 0;
      print_answer(kLeaveHint);
      lines.clear();
      leave_on_interrupt = true;
      continue;
    }
    leave_on_interrupt = false;
    if (line.kind == TypedLine::Kind::kEnd) {
      print_answer("\n");
      return 0;
    }
    if (!lines.add(line.text)) continue;
    const TypedMessage message = lines.take();
    if (message.text.empty()) continue;
    editor.remember(message.text);
    if (!take_message(conversation, message)) return 0;
    leave_on_interrupt = interrupted();  // the answer was stopped
    if (termination_requested()) throw Interrupted();
    clear_interrupt();
  }
}

int run(const ChatOptions& given, const OptionInput& input) {
  ChatOptions options = given;
  options.model_name_or_path = model_argument("chat", given.model_name_or_path, input);
  LoadedModel loaded =
      load_model(options.model_name_or_path, std::nullopt, open_device(options.device), {}, options.quantization);
  Conversation conversation(options, loaded);
  catch_interrupts();
  if (::isatty(STDIN_FILENO) != 0) return converse(conversation);
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (trim(text).empty()) throw Error("hone chat", "standard input is empty", "echo 'a question' | hone chat FOLDER");
  conversation.ask(std::string(trim(text)), is_terminal(OutputStream::kStandardOutput));
  throw_if_interrupted();
  return 0;
}

}  // namespace

void register_chat(CommandRegistry& registry) {
  registry.add(make_command<ChatOptions>(
      {.name = "chat",
       .summary = "Chat with a local model",
       .positionals = "[MODEL]",
       .details = "On a terminal, starts a conversation. Otherwise answers standard input once. Commands of a\n"
                  "conversation:\n" +
                  std::string(chat_help())},
      run));
}

}  // namespace hone
