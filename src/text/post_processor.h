// What a tokenizer's post-processor puts around a text.
#pragma once

#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/tokenizer.h"

namespace hone {

// The special tokens before a single text, of the "post_processor" of tokenizer.json: a TemplateProcessing, alone or in
// a Sequence (as Llama 3 has one), Bert's or Roberta's; none for other kinds. Throws Error, naming `where`.
[[nodiscard]] std::vector<TokenId> leading_tokens(const Json& post_processor, std::string_view where);

}  // namespace hone
