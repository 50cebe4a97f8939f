// Reads and writes tokenizer_config.json: the names of the special tokens, and the chat template.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"

namespace hone {

class TokenizerConfig {
 public:
  TokenizerConfig() = default;
  TokenizerConfig(std::string_view json, std::string_view where);  // throws Error

  // Returns the content of "eos_token", "bos_token", "pad_token" ...; empty if there is none.
  [[nodiscard]] std::string_view token(std::string_view key) const;
  void set_token(const char* key, std::string_view content);
  // Tokens that the config lists or names, with their ids if it lists them and -1 otherwise.
  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }
  [[nodiscard]] const std::string& chat_template() const { return chat_template_; }
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }
  // Returns the text of the file. `added` are the tokenizer's added tokens. The template is written to a separate file.
  [[nodiscard]] std::string written(const std::vector<AddedToken>& added) const;

 private:
  std::string json_ = "{}";  // the file without the template
  std::string chat_template_;
  std::vector<AddedToken> tokens_;
  std::map<std::string, std::string, std::less<>> named_;
};

}  // namespace hone
