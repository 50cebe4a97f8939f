// Parses tokenizer.json into the parts of a Tokenizer, and writes it back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/added_tokens.h"
#include "text/bpe_model.h"

namespace hone {

// The content of tokenizer.json. Vocabulary, merges and added tokens are kept apart because JSON would make them slow.
struct TokenizerFile {
  TokenizerFile() = default;
  TokenizerFile(std::string_view text, std::string_view where);

  std::string rest;  // JSON text of everything else
  BpeModel::Vocabulary vocabulary;
  BpeModel::Merges merges;
  std::vector<AddedToken> added_tokens;
};

[[nodiscard]] BpeModel::Options read_model_options(const Json& model, bool byte_level, std::string_view where);
[[nodiscard]] AddedToken read_added_token(const Json& json, std::string_view where);
// Returns the text of tokenizer.json.
[[nodiscard]] std::string write_tokenizer_file(const std::string& rest, const BpeModel& model,
                                               const std::vector<AddedToken>& added_tokens);

}  // namespace hone
