// Reads the prompts of a dataset and renders them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/request.h"
#include "generate/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

struct GeneratePrompt {
  // Hash of the rendered prompt or, for an endpoint, of the messages. Repeated prompts have a number appended.
  std::string key;
  std::string row;              // JSON object with all columns
  std::string messages;         // JSON list of messages
  std::string prefill;          // start of the assistant's message, with which the completion's text begins
  bool opens_thoughts = false;  // the chat template ends the prompt with <think>
  bool is_text = false;         // the messages were made from a single text
  std::vector<TokenId> tokens;  // [prompt_tokens]; empty for an endpoint
};

// Returns the prompt in the form that rewards get: a text, or messages without the start of an answer.
[[nodiscard]] Json question_of(const GeneratePrompt& prompt);

// Tokenizer and template that render the prompts.
struct PromptForm {
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
};

// Reads the rows of the dataset within the indices and drops duplicates and contaminated rows. `form` is null if the
// prompts are not rendered here, because an endpoint renders them or because they are only inspected. Throws Error if
// no row is left or if a row cannot be used.
[[nodiscard]] std::vector<GeneratePrompt> read_prompts(const GenerateOptions& options, const PromptForm* form,
                                                       GenerateCounts& counts);

// Reads the benchmarks of `decontaminate`. Throws Error if one cannot be read.
void check_benchmarks(const GenerateOptions& options);

// Completion in generations.jsonl.
struct GeneratedText {
  std::string text;
  std::string finish_reason;  // "stop": the model ended it; "length": the length limit cut it
  std::int64_t tokens = 0;
  // With `logprobs` or `prompt_logprobs`: tokens, log-probabilities and most probable tokens, of the prompt too.
  std::optional<Completion> scored = std::nullopt;
};
inline constexpr const char* kPromptHash = "prompt_hash";  // column with the key of a prompt
// Returns the row of a prompt for generations.jsonl: the columns of the dataset, the completions and the key. With
// `logprobs` also completion_ids and completion_logprobs, [completions][tokens]; with `prompt_logprobs` prompt_ids and
// prompt_logprobs, [tokens], of which the first is null; and if they are above 0, completion_top_logprobs and
// prompt_top_logprobs: for each token an object from ids to log-probabilities.
[[nodiscard]] Json journal_row(const GenerateOptions& options, const GeneratePrompt& prompt,
                               std::span<const GeneratedText> completions);

}  // namespace hone
