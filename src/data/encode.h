// Turns rows into tokenised examples for training.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/columns.h"
#include "data/example_set.h"
#include "data/source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

// Selects the tokens that count as targets of the loss.
enum class LossOn {
  kAutomatic,  // the completion if the row has one, otherwise all tokens
  kAll,
  kCompletion,  // completion_only_loss: true
  kAssistant,   // assistant_only_loss: the text that the template's {% generation %} blocks produced
};

struct EncodeOptions {
  ColumnOptions columns;
  LossOn loss = LossOn::kAutomatic;
  std::int64_t max_length = 0;  // an example keeps its first max_length tokens; 0: all
  bool tokens_only = false;     // skip_prepare_dataset: rows without input_ids are unusable
  // Accept a tokenizer without an EOS token (a character tokenizer, for example); texts then end without one.
  bool eos_optional = false;
};

// Counts of what happened to the rows of a source.
struct EncodingReport {
  std::int64_t rows = 0;  // rows read, including unusable ones
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t target_tokens = 0;  // tokens that the loss counts; 0 for prompts
  std::int64_t cut = 0;            // examples that were longer than the limit and were truncated
  BadRows bad;

  // Logs how many rows were left out and how many examples were truncated. `limit` is the limit's name and value,
  // "max_length 1024".
  void log(std::string_view source, std::string_view limit) const;
};

// Encodes all rows of a source, in order, in parallel. The kind of a row (RowKind) decides what is encoded:
// - text: the post-processor's leading tokens (BOS) and the text, followed by EOS; neither is added twice.
// - messages: the text that the chat template renders.
// - prompt and completion: two texts are joined and encoded as a text. Messages are rendered together; the prompt's
//   part ends with the generation prompt.
// - problem and solution: a prompt of one user message and a completion of one assistant message.
// - input_ids: the row is already tokenised; completion_mask, assistant_masks or labels mark its targets.
// A row without any target (after truncation) is unusable. Throws Error if no row is usable.
[[nodiscard]] ExampleSet encode_examples(const Source& source, const Tokenizer& tokenizer,
                                         const ChatTemplate& chat_template, const EncodeOptions& options,
                                         EncodingReport& report);

// Returns the tokenizer's values for a chat template: bos_token, eos_token and pad_token, as far as they exist.
[[nodiscard]] Json template_variables(const Tokenizer& tokenizer);

}  // namespace hone
