// The prompts to generate from.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "generate/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

struct GeneratePrompt {
  std::string key;              // a hash of the rendered prompt; prompts that are equal have their count behind it
  std::string row;              // JSON: all columns
  std::string messages;         // JSON: as rendered
  std::string prefill;          // what the completion's text begins with: the start of an assistant's message
  bool opens_thoughts = false;  // the template wrote <think> itself
  std::vector<TokenId> tokens;
};

// The dataset's rows within the indices, without duplicates and contaminated ones. Throws Error where none is left, or
// one cannot be used.
[[nodiscard]] std::vector<GeneratePrompt> read_prompts(const GenerateOptions& options, const Tokenizer& tokenizer,
                                                       const ChatTemplate& chat_template, GenerateCounts& counts);

}  // namespace hone
