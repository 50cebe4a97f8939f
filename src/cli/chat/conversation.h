// Holds a conversation with a local model: keeps the messages, generates the answers and executes the commands of
// `hone chat`, such as /system and /set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_option.h"
#include "core/json.h"
#include "core/options.h"
#include "data/encode.h"
#include "engine/engine.h"
#include "engine/sampling_keys.h"
#include "model/loaded_model.h"

namespace hone {

struct ChatOptions : SamplingKeys {
  std::string model_name_or_path;
  std::string system_prompt;
  std::string chat_template;
  std::int64_t max_tokens = 1024;
  std::int64_t max_model_len = 0;
  Quantization quantization = Quantization::kAutomatic;
  DeviceChoice device = DeviceChoice::kAutomatic;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder or Hugging Face name of the model; also the first argument");
    v("chat_template", chat_template, "Chat template, as Jinja text or a file; unset: the model's");
    v("system_prompt", system_prompt, "System message at the start of the conversation");
    v("quantization", quantization, kQuantizationHelp);
    v("device", device, kDeviceHelp);
    v("max_model_len", max_model_len, "Maximum tokens per conversation; 0: the model's positions, at most 8,192",
      at_least(0));
    SamplingKeys::fields(v);
    v("max_tokens", max_tokens, "Maximum tokens per answer", at_least(1));
  }
};

// Writes to standard output and flushes it.
void print_answer(std::string_view text);

class Conversation {
 public:
  // Allocates an engine for one sequence. `loaded` must outlive the conversation. Throws Error if max_model_len exceeds
  // the model's positions or the engine does not fit into memory.
  Conversation(const ChatOptions& options, LoadedModel& loaded);

  // Removes all messages except the system prompt.
  void clear();
  // Generates and prints the answer to `text` and appends both to the conversation; Ctrl+C ends the answer early. With
  // `styled`, the text between <think> and </think> is dimmed, and the reason for a truncated answer is printed below
  // it; otherwise the reason is a warning on standard error. Throws Error if the conversation leaves no room for an
  // answer, and removes the question again.
  void ask(const std::string& text, bool styled);
  // Executes a command such as "/clear". Returns false if it ends the chat. Throws Error if the command is wrong.
  bool command(std::string_view line);

 private:
  void set(const std::string& text);
  void make_engine();
  void check_room(std::int64_t prompt_tokens) const;
  [[nodiscard]] std::string max_model_len_hint() const;
  [[nodiscard]] std::string cut_text(std::int64_t prompt_tokens, const Completion& completion) const;

  ChatOptions options_;
  LoadedModel& loaded_;
  ChatTemplate template_;
  std::vector<TokenId> stop_token_ids_;
  std::unique_ptr<Engine> engine_;
  std::int64_t max_model_len_ = 0;
  std::shared_ptr<Json> messages_;  // an array
  std::uint64_t turns_ = 0;
};

// Returns true if a typed line is a command and not a message: it begins with '/', or is quit, exit or clear.
[[nodiscard]] bool is_chat_command(std::string_view line);
// Text that /help prints: a line for each command.
[[nodiscard]] std::string_view chat_help();

}  // namespace hone
