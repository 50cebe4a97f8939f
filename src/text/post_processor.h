// What a tokenizer's post-processor puts around a text.
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
// The special tokens around a single text, of the "post_processor" of tokenizer.json: a TemplateProcessing, alone or in
// a Sequence (as Llama 3 has one), Bert's or Roberta's; none for other kinds. Throws Error, naming `where`.
[[nodiscard]] SurroundingTokens read_surrounding_tokens(const Json& post_processor, std::string_view where);

}  // namespace hone
