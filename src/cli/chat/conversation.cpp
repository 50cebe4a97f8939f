#include "cli/chat/conversation.h"

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/random.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestConversation = 8192;
// Options that /set may change during a conversation.
const std::vector<std::string> kSettings{
    "temperature",      "top_p",      "top_k", "min_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "max_tokens", "seed"};
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";

// Prints an answer while it is generated. If styled, dims the text between <think> and </think>.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool styled) : styled_(styled) {}

  void add(std::string_view piece) {
    if (!styled_) return print_answer(piece);
    seen_ += piece;
    const bool thinking =
        seen_.rfind("<think>") != std::string::npos &&
        (seen_.rfind("</think>") == std::string::npos || seen_.rfind("</think>") < seen_.rfind("<think>"));
    if (thinking != dim_) print_answer(thinking ? kDim : kNormal);
    dim_ = thinking;
    print_answer(printable(piece));
  }
  ~AnswerPrinter() {
    if (dim_) print_answer(kNormal);
  }
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

 private:
  bool styled_;
  bool dim_ = false;
  std::string seen_;
};

}  // namespace

void print_answer(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool is_chat_command(std::string_view line) {
  return line.starts_with("/") || line == "quit" || line == "exit" || line == "clear";
}

std::string_view chat_help() {
  return "  quit, /quit, Ctrl+D    leave\n"
         "  clear, /clear          forget the conversation\n"
         "  /system TEXT           set a new system prompt and start a new conversation\n"
         "  /set NAME VALUE        set temperature, top_p, top_k, min_p, a penalty, max_tokens or seed\n"
         "  /save FILE             write the conversation as JSON\n"
         "  \\ at end of line       continue the message on the next line\n"
         "  \"\"\"                    begin or end a message of several lines; a pasted text is one message\n"
         "  Ctrl+C                 stop the answer; at the prompt: drop the line; twice: leave\n";
}

Conversation::Conversation(const ChatOptions& options, LoadedModel& loaded)
    : options_(options),
      loaded_(loaded),
      template_(chat_template_of(loaded.tokenizer, options.chat_template)),
      stop_token_ids_(stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer)) {
  make_engine();
  clear();
}

void Conversation::clear() {
  messages_ = std::make_shared<Json>(Json::array());
  if (!options_.system_prompt.empty()) messages_->push_back({{"role", "system"}, {"content", options_.system_prompt}});
}

void Conversation::ask(const std::string& text, bool styled) {
  messages_->push_back({{"role", "user"}, {"content", text}});
  Request request;
  RequestId id = 0;
  std::int64_t prompt_tokens = 0;
  try {
    const RenderedChat chat = template_.render(*messages_, true, template_variables(loaded_.tokenizer));
    request.prompt = loaded_.tokenizer.encode(chat.text);
    request.sampling = options_.params(options_.max_tokens, stop_token_ids_);
    request.sampling.seed = RandomStream(static_cast<std::uint64_t>(options_.seed), "chat").bits(turns_++);
    prompt_tokens = std::ssize(request.prompt);
    check_room(prompt_tokens);
    id = engine_->add(std::move(request));
  } catch (const Error&) {
    messages_->erase(messages_->end() - 1);
    throw;
  }
  {
    AnswerPrinter printer(styled);
    try {
      engine_->run([&](const Engine::Update& update) { printer.add(update.text); });
    } catch (const Interrupted&) {  // keep what was generated so far as the answer
    }
  }
  const Completion completion = engine_->take(id);
  messages_->push_back({{"role", "assistant"}, {"content", completion.text}});
  print_answer("\n");
  if (completion.finish_reason != FinishReason::kLength) return;
  if (styled) {
    print_answer(text_of(kDim, "(", cut_text(prompt_tokens, completion), ")", kNormal, "\n"));
  } else {
    log_warning(text_of("the answer is ", cut_text(prompt_tokens, completion)));
  }
}

void Conversation::check_room(std::int64_t prompt_tokens) const {
  if (prompt_tokens < max_model_len_) return;
  const auto asked = std::ranges::count_if(*messages_, [](const Json& message) { return message["role"] == "user"; });
  throw Error(asked > 1 ? "the conversation" : "the question",
              text_of("has ", format_count(prompt_tokens), " tokens, but only ", format_count(max_model_len_),
                      " fit, including the answer"),
              (asked > 1 ? "/clear forgets the conversation" : "ask something shorter") + max_model_len_hint());
}

// Suggests a larger --max_model_len if the model has more positions than the conversation may use.
std::string Conversation::max_model_len_hint() const {
  const std::int64_t positions = loaded_.model->shape().max_position_embeddings;
  if (max_model_len_ >= positions) return "";
  return text_of("; hone chat --max_model_len allows up to ", positions);
}

std::string Conversation::cut_text(std::int64_t prompt_tokens, const Completion& completion) const {
  const std::int64_t tokens = std::ssize(completion.tokens);
  if (prompt_tokens + tokens < max_model_len_) {
    return text_of("cut at ", format_count(tokens), " tokens; /set max_tokens N or --max_tokens N allows more");
  }
  return text_of("cut, the context is full: ", format_count(prompt_tokens + tokens), " of ",
                 format_count(max_model_len_), " tokens; /clear forgets the conversation", max_model_len_hint());
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
  const bool adjusted = options_.adjusts_logits();
  options_ = changed;
  // An engine whose requests do not adjust logits does not allocate the memory for it.
  if (!adjusted && options_.adjusts_logits()) make_engine();
}

void Conversation::make_engine() {
  max_model_len_ = model_len(loaded_.model->shape(), options_.max_model_len, kLongestConversation);
  engine_.reset();  // release the old engine's memory before allocating the new one
  engine_ = std::make_unique<Engine>(
      *loaded_.model, loaded_.tokenizer, loaded_.weights, std::make_shared<Arena>(loaded_.weights.device()),
      engine_options({.max_model_len = max_model_len_, .max_num_seqs = 1, .adjust_logits = options_.adjusts_logits()}));
}

}  // namespace hone
