#include "cli/chat/conversation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"

namespace hone {
namespace {

// Options that /set may change during a conversation.
const std::vector<std::string> kSettings{
    "temperature",      "top_p",      "top_k", "min_p",        "repetition_penalty", "frequency_penalty",
    "presence_penalty", "max_tokens", "seed",  "fold_thoughts"};

}  // namespace

bool is_chat_command(std::string_view line) {
  return line.starts_with("/") || line == "quit" || line == "exit" || line == "clear";
}

std::string_view chat_help() {
  return "  quit, /quit, Ctrl+D    leave\n"
         "  clear, /clear          forget the conversation\n"
         "  /system TEXT           set a new system prompt and start a new conversation\n"
         "  /set NAME VALUE        set temperature, top_p, top_k, min_p, a penalty, max_tokens, seed or fold_thoughts\n"
         "  /thoughts              show what the model thought before its last answer\n"
         "  /save FILE             write the conversation as JSON\n"
         "  \\ at end of line       continue the message on the next line\n"
         "  \"\"\"                    begin or end a message of several lines; a pasted text is one message\n"
         "  Ctrl+C                 stop the answer; at the prompt: drop the line; twice: leave\n";
}

Conversation::Conversation(const ChatOptions& options, std::set<std::string> set_keys, Answerer& answerer)
    : options_(options), set_keys_(std::move(set_keys)), answerer_(answerer) {
  clear();
}

void Conversation::clear() {
  messages_ = std::make_shared<Json>(Json::array());
  if (!options_.system_prompt.empty()) messages_->push_back({{"role", "system"}, {"content", options_.system_prompt}});
}

void Conversation::ask(const std::string& text, bool styled) {
  messages_->push_back({{"role", "user"}, {"content", text}});
  const ThoughtStyle thoughts = !styled                  ? ThoughtStyle::kPlain
                                : options_.fold_thoughts ? ThoughtStyle::kFolded
                                                         : ThoughtStyle::kDimmed;
  AnswerPrinter printer(thoughts);
  ChatAnswer answer;
  const ChatTurn turn{.messages = *messages_, .options = options_, .set_keys = set_keys_, .index = turns_};
  bool begun = false;
  try {
    answer = answerer_.answer(turn, [&](const AnswerPiece& piece) {
      begun = begun || !piece.text.empty();
      printer.add(piece);
    });
  } catch (const Error&) {
    printer.finish();
    if (begun) print_answer("\n");
    messages_->erase(messages_->end() - 1);
    throw;
  }
  printer.finish();
  ++turns_;
  thoughts_ = printer.thoughts();
  messages_->push_back({{"role", "assistant"}, {"content", answer.text}});
  print_answer("\n");
  if (answer.cut.empty()) return;
  if (styled) {
    print_answer(text_of("\x1b[2m(", answer.cut, ")\x1b[0m\n"));
  } else {
    log_warning(text_of("the answer is ", answer.cut));
  }
}

bool Conversation::command(std::string_view line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string_view name = line.substr(0, space);
  const std::string rest(trim(line.substr(space)));
  if (name == "quit" || name == "exit" || name == "/quit" || name == "/exit") return false;
  if (name == "clear" || name == "/clear") {
    clear();
  } else if (name == "/system") {
    options_.system_prompt = rest;
    clear();
  } else if (name == "/set") {
    set(rest);
  } else if (name == "/thoughts") {
    if (thoughts_.empty()) throw Error("/thoughts", "the last answer has none");
    print_answer(text_of("\x1b[2m", printable(trim(thoughts_)), "\x1b[0m\n"));
  } else if (name == "/save") {
    if (rest.empty()) throw Error("/save", "no file given", "/save conversation.json");
    write_json(rest, *messages_);
    print_answer(text_of("wrote ", rest, "\n"));
  } else if (name == "/help") {
    print_answer(chat_help());
  } else {
    throw Error(name, "unknown command", "/help lists them");
  }
  return true;
}

void Conversation::set(const std::string& text) {
  const std::vector<std::string> words = split(text, ' ');
  if (words.size() != 2)
    throw Error("/set", text_of("expected a name and a value, saw '", text, "'"), "/set temperature 0.7");
  if (std::ranges::count(kSettings, words[0]) == 0) {
    throw Error("/set", text_of(shown(words[0]), " cannot be set"), text_of(join(kSettings, ", "), " can"));
  }
  const std::vector<std::string> arguments{text_of("--", words[0], "=", words[1])};
  ChatOptions changed = options_;
  OptionInput input;
  try {
    read_option_flags(OptionTable(changed), arguments, {}, input);
  } catch (const Error& error) {  // its text begins with the flag --NAME
    throw Error(text_of("/set ", std::string_view(error.what()).substr(2)));
  }
  options_ = changed;
  set_keys_.insert(words[0]);
  answerer_.options_changed(options_);
}

}  // namespace hone
