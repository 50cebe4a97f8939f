// Renders rows as text. The functions throw Error with the reason only; the caller adds the file and line.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "data/encode.h"
#include "data/target_mask.h"

namespace hone {

// A row as text, with the parts that the loss counts.
struct RenderedRow {
  std::string text;
  bool all_targets = true;         // true: the whole text is a target
  std::vector<ByteRange> targets;  // targets, if all_targets is false
  bool is_plain = false;           // not rendered by a template: BOS and EOS are added if missing, and EOS is a target
};
[[nodiscard]] RenderedRow render_row(const Json& row, const ChatTemplate& chat_template, const Json& variables,
                                     const EncodeOptions& options);

struct RenderedPrompt {
  std::string text;
  std::string prefill;
};
// Renders `messages` with the generation prompt, or, if the last message is the assistant's, open for continuation
// (transformers' continue_final_message).
[[nodiscard]] RenderedPrompt render_prompt(const Json& messages, const ChatTemplate& chat_template,
                                           const Json& variables);

// Adds a row's own template variables (chat_template_kwargs, tools) to `variables`.
[[nodiscard]] Json row_variables(const Json& row, const Json& variables);

}  // namespace hone
