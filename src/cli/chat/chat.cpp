// hone chat: a conversation with a local model.
#include <histedit.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "backend/device_option.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/strings.h"
#include "core/terminal.h"
#include "data/encode.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "engine/sampling_keys.h"

namespace hone {
namespace {

struct ChatOptions : SamplingKeys {
  std::string model_name_or_path;
  std::string system_prompt;
  std::string chat_template;
  std::int64_t max_tokens = 1024;
  std::int64_t max_model_len = 0;
  DeviceChoice device = DeviceChoice::automatic;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder of the model; also the first argument");
    v("chat_template", chat_template, "Jinja text or a file of it, in place of the model's");
    v("system_prompt", system_prompt, "Put before the conversation");
    v("device", device, kDeviceHelp);
    v("max_model_len", max_model_len, "Tokens of a conversation; 0: as many as the model knows, at most 8,192",
      at_least(0));
    SamplingKeys::fields(v);
    v("max_tokens", max_tokens, "Tokens of an answer", at_least(1));
  }
};

constexpr std::int64_t kLongestConversation = 8192;
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";
constexpr std::string_view kHelp =
    "  quit, /quit            leave (Ctrl+D too)\n"
    "  clear, /clear          forget the conversation\n"
    "  /system TEXT           a new system prompt; the conversation starts anew\n"
    "  /set NAME VALUE        temperature, top_p, top_k, min_p, repetition_penalty, max_tokens or seed\n"
    "  /save FILE             write the conversation as JSON\n"
    "  Ctrl+C                 stop the answer; at the prompt: leave\n";

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Prints an answer as it comes, what stands between <think> and </think> dimmed on a terminal.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool styled) : styled_(styled) {}

  void add(std::string_view piece) {
    if (!styled_) return print(piece);
    seen_ += piece;
    const bool thinking =
        seen_.rfind("<think>") != std::string::npos &&
        (seen_.rfind("</think>") == std::string::npos || seen_.rfind("</think>") < seen_.rfind("<think>"));
    if (thinking != dim_) print(thinking ? kDim : kNormal);
    dim_ = thinking;
    print(printable(piece));
  }
  ~AnswerPrinter() {
    if (dim_) print(kNormal);
  }
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

 private:
  bool styled_;
  bool dim_ = false;
  std::string seen_;
};

class Conversation {
 public:
  Conversation(const ChatOptions& options, LoadedModel& loaded)
      : options_(options),
        loaded_(loaded),
        template_(chat_template_of(loaded.tokenizer, options.chat_template)),
        stop_token_ids_(stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer)) {
    make_engine();
    clear();
  }

  void clear() {
    messages_ = Json::array();
    if (!options_.system_prompt.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system_prompt}});
  }

  // Prints the answer to `text` and keeps both; Ctrl+C stops it.
  void ask(const std::string& text, bool styled) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    const RenderedChat chat = template_.render(messages_, true, template_variables(loaded_.tokenizer));
    Request request;
    request.prompt = loaded_.tokenizer.encode(chat.text);
    request.sampling = options_.params(options_.max_tokens, stop_token_ids_);
    request.sampling.seed = RandomStream(static_cast<std::uint64_t>(options_.seed), "chat").bits(turns_++);
    RequestId id = 0;
    try {
      id = engine_->add(std::move(request));
    } catch (const Error&) {
      messages_.erase(messages_.end() - 1);
      throw;
    }
    AnswerPrinter printer(styled);
    while (engine_->has_work()) {
      for (const Engine::Update& update : engine_->step()) printer.add(update.text);
      if (interrupted()) engine_->cancel(id);
    }
    const Completion completion = engine_->take(id);
    messages_.push_back({{"role", "assistant"}, {"content", completion.text}});
    print("\n");
    if (completion.finish_reason == FinishReason::length && styled) {
      print(text_of(kDim, "(cut at ", completion.tokens.size(), " tokens: /set max_tokens N)", kNormal, "\n"));
    }
  }

  // False where the line ends the chat.
  bool command(std::string_view line) {
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
      if (rest.empty()) throw Error("/save", "names no file", "/save conversation.json");
      write_json(rest, messages_);
      print(text_of("wrote ", rest, "\n"));
    } else if (name == "/help") {
      print(kHelp);
    } else {
      throw Error(name, "is no command", "/help lists them");
    }
    return true;
  }

 private:
  void set(const std::string& text) {
    const std::vector<std::string> words = split(text, ' ');
    if (words.size() != 2)
      throw Error("/set", text_of("expected a name and a value, saw '", text, "'"), "/set temperature 0.7");
    const std::vector<std::string> arguments{"--" + words[0], words[1]};
    ChatOptions changed = options_;
    OptionInput input;
    read_option_flags(OptionTable(changed), arguments, {}, input);
    const bool penalized = options_.repetition_penalty != 1;
    options_ = changed;
    if (!penalized && options_.repetition_penalty != 1) make_engine();
  }

  void make_engine() {
    const ModelShape& shape = loaded_.model->shape();
    EngineOptions engine;
    engine.max_model_len = options_.max_model_len > 0 ? options_.max_model_len
                                                      : std::min(shape.max_position_embeddings, kLongestConversation);
    engine.max_num_seqs = 1;
    engine.repetition_penalty = options_.repetition_penalty != 1;
    engine_.reset();  // its memory is given back first
    engine_ = std::make_unique<Engine>(*loaded_.model, loaded_.tokenizer, loaded_.weights,
                                       std::make_shared<Arena>(loaded_.weights.device()), engine);
  }

  ChatOptions options_;
  LoadedModel& loaded_;
  ChatTemplate template_;
  std::vector<TokenId> stop_token_ids_;
  std::unique_ptr<Engine> engine_;
  Json messages_;
  std::uint64_t turns_ = 0;
};

bool is_command(std::string_view line) {
  return line.starts_with("/") || line == "quit" || line == "exit" || line == "clear";
}

// Lines from a person, with editing and history.
class LineEditor {
 public:
  LineEditor() : edit_(el_init("hone", stdin, stdout, stderr)), history_(history_init()) {
    HistEvent event{};
    history(history_, &event, H_SETSIZE, 1000);
    el_set(edit_, EL_PROMPT, +[](EditLine*) -> const char* { return "> "; });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_SIGNAL, 0);
  }
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor() {
    history_end(history_);
    el_end(edit_);
  }

  std::optional<std::string> read() {
    int count = 0;
    const char* line = el_gets(edit_, &count);
    if (line == nullptr || count <= 0) return std::nullopt;
    HistEvent event{};
    if (!trim(line).empty()) history(history_, &event, H_ENTER, line);
    return std::string(trim(line));
  }

 private:
  EditLine* edit_;
  History* history_;
};

int converse(Conversation& conversation) {
  LineEditor editor;
  print("Ask something; /help lists the commands.\n");
  for (;;) {
    clear_interrupt();
    const std::optional<std::string> line = editor.read();
    if (!line) {
      print("\n");
      return 0;
    }
    if (line->empty()) continue;
    try {
      if (!is_command(*line)) {
        conversation.ask(*line, true);
      } else if (!conversation.command(*line)) {
        return 0;
      }
    } catch (const Error& error) {
      print(text_of(error.what(), "\n"));
    }
  }
}

int run(const ChatOptions& given, const OptionInput& input) {
  ChatOptions options = given;
  options.model_name_or_path = model_argument("chat", given.model_name_or_path, input);
  LoadedModel loaded = load_model(options.model_name_or_path, std::nullopt, open_device(options.device));
  Conversation conversation(options, loaded);
  catch_interrupts();
  if (::isatty(STDIN_FILENO) != 0) return converse(conversation);
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (trim(text).empty()) throw Error("hone chat", "nothing was piped in", "echo 'a question' | hone chat FOLDER");
  conversation.ask(std::string(trim(text)), is_terminal(OutputStream::standard_output));
  throw_if_interrupted();
  return 0;
}

}  // namespace

void register_chat(CommandRegistry& registry) {
  registry.add(make_command<ChatOptions>(
      {.name = "chat",
       .summary = "Talk with a local model",
       .positionals = "[MODEL]",
       .details =
           "On a terminal a conversation; piped input is answered once. In the conversation:\n" + std::string(kHelp)},
      run));
}

}  // namespace hone
