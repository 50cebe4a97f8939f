// From rows to tokenised examples.
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

// The tokens that are learned.
enum class LossOn {
  automatic,  // the completion where there is one, else all
  all,
  completion,  // completion_only_loss: true
  assistant,   // assistant_only_loss: what the template's {% generation %} blocks produced
};

struct EncodeOptions {
  ColumnOptions columns;
  LossOn loss = LossOn::automatic;
  std::int64_t max_length = 0;  // tokens kept of an example, the first ones; 0: all
  bool tokens_only = false;     // rows without input_ids are unusable
  bool eos_optional = false;    // texts may go without an end where the tokenizer has none (characters, say)
};

// What became of the rows.
struct EncodingReport {
  std::int64_t rows = 0;  // read, unusable ones included
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t target_tokens = 0;  // tokens that are learned; of prompts 0
  std::int64_t cut = 0;            // examples that were longer than the limit
  BadRows bad;

  // Says what was left out and what was cut; `limit` is the name and value of the length, "max_length 1024".
  void log(std::string_view source, std::string_view limit) const;
};

// Encodes all rows of a source, in order, in parallel.
// text: what the tokenizer's post-processor puts before one (a BOS) unless it is there, the text, and EOS unless it
// ends with it. Messages: as the template renders them. prompt and completion: texts are joined, then as a text;
// messages are rendered together, and the prompt's part ends with the generation prompt. problem and solution: as a
// prompt of one user message and a completion of one assistant message. A row with input_ids is taken as tokenised, its
// completion_mask, assistant_masks or labels as what is learned. A row in which no token is left to learn (after
// the cut) counts as unusable. Throws Error where no row is usable.
[[nodiscard]] ExampleSet encode_examples(const Source& source, const Tokenizer& tokenizer,
                                         const ChatTemplate& chat_template, const EncodeOptions& options,
                                         EncodingReport& report);

// What a chat template may read of a tokenizer: bos_token, eos_token and pad_token where there are such.
[[nodiscard]] Json template_variables(const Tokenizer& tokenizer);

}  // namespace hone
