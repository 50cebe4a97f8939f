// A conversation with a local model: its messages, its answers and the commands that change it.
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

// Writes to standard output at once.
void print_answer(std::string_view text);

class Conversation {
 public:
  // The model must outlive it.
  Conversation(const ChatOptions& options, LoadedModel& loaded);

  // Forgets all but the system prompt.
  void clear();
  // Prints the answer to `text` and keeps both; Ctrl+C stops it. Throws Error where the conversation has become too
  // long for an answer; the question is forgotten then. `styled`: thoughts are dimmed, and what cut the answer is said
  // below it, else on standard error.
  void ask(const std::string& text, bool styled);
  // Obeys a command; false where it ends the chat. Throws Error.
  bool command(std::string_view line);

 private:
  void set(const std::string& text);
  void make_engine();
  void check_room(std::int64_t prompt_tokens) const;
  [[nodiscard]] std::string larger_help() const;
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

// Whether a line that was typed is a command.
[[nodiscard]] bool is_chat_command(std::string_view line);
// What /help prints.
[[nodiscard]] std::string_view chat_help();

}  // namespace hone
