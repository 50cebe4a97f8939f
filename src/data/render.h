// Rows as text. The functions throw Error with the reason alone: the caller knows the place.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "data/encode.h"
#include "data/target_mask.h"

namespace hone {

struct RenderedRow {
  std::string text;
  bool all_targets = true;
  std::vector<ByteRange> targets;  // where not all of it is learned
  bool is_plain = false;           // no template made it: it gets BOS and EOS where absent, EOS learned
};
[[nodiscard]] RenderedRow render_row(const Json& row, const ChatTemplate& chat_template, const Json& variables,
                                     const EncodeOptions& options);

struct RenderedPrompt {
  std::string text;
  std::string prefill;
};
// `messages` with the generation prompt, or open for continuation where the last is the assistant's (transformers'
// continue_final_message).
[[nodiscard]] RenderedPrompt render_prompt(const Json& messages, const ChatTemplate& chat_template,
                                           const Json& variables);

// `variables` with what a row adds: chat_template_kwargs, tools.
[[nodiscard]] Json row_variables(const Json& row, const Json& variables);

}  // namespace hone
