// hone chat: a conversation with a local model or a server.
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "cli/chat/conversation.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/local_answerer.h"
#include "cli/chat/message_lines.h"
#include "cli/chat/server_answerer.h"
#include "cli/engine_job.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/terminal.h"
#include "engine/engine_part.h"
#include "system/cache_folder.h"
#include "system/peers.h"

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
  } catch (const JobFailure&) {
    throw;
  } catch (const Error& error) {
    print_answer(text_of(error.what(), "\n"));
  }
  return true;
}

// The file of typed messages; empty if they are not kept.
std::filesystem::path history_file(const ChatOptions& options) {
  const std::filesystem::path folder = cache_folder();
  return options.keep_history && !folder.empty() ? folder / "chat_history" : std::filesystem::path();
}

int converse(Conversation& conversation, const ChatOptions& options) {
  LineEditor editor(history_file(options));
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

int chat_with(Answerer& answerer, const ChatOptions& options, const std::set<std::string>& set_keys) {
  Conversation conversation(options, set_keys, answerer);
  if (::isatty(STDIN_FILENO) != 0) return converse(conversation, options);
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (trim(text).empty()) throw Error("hone chat", "standard input is empty", "echo 'a question' | hone chat FOLDER");
  conversation.ask(std::string(trim(text)), is_terminal(OutputStream::kStandardOutput));
  throw_if_interrupted();
  return 0;
}

int chat_with_server(const ChatOptions& options, const OptionInput& input, const std::set<std::string>& set_keys) {
  for (const char* key : {"chat_template", "quantization", "device", "max_model_len", "banned_token_ids",
                          "latent_kv_cache", "latent_attention", "kv_cache_dtype", "tensor_parallel_size"})
    if (input.was_set(key)) throw Error(input.place_of(key), "has no effect with --server", "remove it");
  catch_interrupts();
  ServerAnswerer answerer(options);
  if (::isatty(STDIN_FILENO) != 0) log_info(text_of("chatting with ", answerer.model(), " on ", options.server));
  return chat_with(answerer, options, set_keys);
}

// Loads the model, or this rank's part of it.
LoadedModel load(const ChatOptions& options, EngineGroup* group) {
  return load_model(options.model_name_or_path, std::nullopt, open_device(options.device),
                    engine_part(group, {.cache = options.cache}), options.quantization);
}

int chat_with_model(const ChatOptions& options, EngineGroup* group, const std::set<std::string>& set_keys) {
  LoadedModel loaded = load(options, group);
  LocalAnswerer answerer(options, loaded, group);
  catch_interrupts();
  return chat_with(answerer, options, set_keys);
}

int run(const ChatOptions& given, const OptionInput& input) {
  ChatOptions options = given;
  std::set<std::string> set_keys;
  for (const auto& [key, place] : input.places) set_keys.insert(key);
  const bool names_model = !input.positionals.empty() || !given.model_name_or_path.empty();
  if (options.server.empty() || names_model)
    options.model_name_or_path = model_argument("chat", given.model_name_or_path, input);
  if (!options.server.empty()) return chat_with_server(options, input, set_keys);
  return run_engine_job(
      {.tensor_parallel_size = options.tensor_parallel_size,
       .model = options.model_name_or_path,
       .device = options.device,
       .converses = true},
      [&](EngineGroup* group) { return load(options, group); },
      [&](EngineGroup* group) { return chat_with_model(options, group, set_keys); });
}

}  // namespace

void register_chat(CommandRegistry& registry) {
  registry.add(make_command<ChatOptions>(
      {.name = "chat",
       .summary = "Chat with a local model or a server",
       .positionals = "[MODEL]",
       .details = "On a terminal, starts a conversation. Otherwise answers standard input once. Commands of a\n"
                  "conversation:\n" +
                  std::string(chat_help())},
      run));
}

}  // namespace hone
