// The special tokens that a tokenizer's post-processor adds around a text.
#pragma once

#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/tokenizer.h"

namespace hone {

struct SurroundingTokens {
  std::vector<TokenId> leading;
  std::vector<TokenId> trailing;
};
// Reads the special tokens around a single text from the "post_processor" of tokenizer.json: a TemplateProcessing,
// alone or in a Sequence (as in Llama 3), Bert's or Roberta's. Other kinds add none. Throws Error that begins with
// `where`.
[[nodiscard]] SurroundingTokens read_surrounding_tokens(const Json& post_processor, std::string_view where);

}  // namespace hone
