#include "data/prompt_set.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "data/encode_rows.h"
#include "data/render.h"

namespace hone {
namespace {

struct EncodedPrompt {
  Prompt prompt;
  bool is_cut = false;
};

EncodedPrompt encode_prompt(const Json& row, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                            const Json& variables, const PromptOptions& options) {
  const std::string_view column = prompt_column_of(row, options.columns);
  Json messages = is_text(row, column) ? Json::array({{{"role", "user"}, {"content", text_in(row, column)}}})
                                       : messages_in(row, column);
  add_system_prompt(messages, options.columns);
  RenderedPrompt rendered = render_prompt(messages, chat_template, row_variables(row, variables));

  EncodedPrompt out;
  std::vector<TokenId>& tokens = out.prompt.tokens;
  tokens = tokenizer.encode(rendered.text);
  // Truncate at the front: the question is usually at the end.
  const auto limit = static_cast<std::size_t>(options.max_prompt_length);
  out.is_cut = limit > 0 && tokens.size() > limit;
  if (out.is_cut) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(limit));
  if (tokens.empty()) throw Error("the template renders the prompt as an empty text");
  out.prompt.prefill = std::move(rendered.prefill);
  // Rows of text files may contain invalid UTF-8, which JSON cannot represent.
  out.prompt.row = row.dump(-1, ' ', false, Json::error_handler_t::replace);
  return out;
}

std::size_t end_of(const std::vector<std::int64_t>& ends, std::int64_t index) {
  return index < 0 ? 0 : static_cast<std::size_t>(ends[static_cast<std::size_t>(index)]);
}

}  // namespace

std::span<const TokenId> PromptSet::tokens(std::int64_t prompt) const {
  HONE_ASSERT(prompt >= 0 && prompt < size(), prompt, " of ", size());
  const std::size_t begin = end_of(token_ends_, prompt - 1);
  return std::span<const TokenId>(tokens_).subspan(begin, end_of(token_ends_, prompt) - begin);
}

std::string_view PromptSet::prefill(std::int64_t prompt) const {
  HONE_ASSERT(prompt >= 0 && prompt < size(), prompt, " of ", size());
  const std::size_t begin = end_of(row_ends_, prompt);
  return std::string_view(texts_).substr(begin, end_of(prefill_ends_, prompt) - begin);
}

std::string_view PromptSet::row_text(std::int64_t prompt) const {
  HONE_ASSERT(prompt >= 0 && prompt < size(), prompt, " of ", size());
  const std::size_t begin = end_of(prefill_ends_, prompt - 1);
  return std::string_view(texts_).substr(begin, end_of(row_ends_, prompt) - begin);
}

Json PromptSet::row(std::int64_t prompt) const { return parse_json(row_text(prompt), "prompt"); }

Prompt PromptSet::copy(std::int64_t prompt) const {
  const auto ids = tokens(prompt);
  return {.tokens = {ids.begin(), ids.end()},
          .prefill = std::string(prefill(prompt)),
          .row = std::string(row_text(prompt))};
}

void PromptSet::add(const Prompt& prompt) {
  tokens_.insert(tokens_.end(), prompt.tokens.begin(), prompt.tokens.end());
  token_ends_.push_back(static_cast<std::int64_t>(tokens_.size()));
  texts_ += prompt.row;
  row_ends_.push_back(static_cast<std::int64_t>(texts_.size()));
  texts_ += prompt.prefill;
  prefill_ends_.push_back(static_cast<std::int64_t>(texts_.size()));
  longest_ = std::max(longest_, static_cast<std::int64_t>(prompt.tokens.size()));
}

PromptSet PromptSet::copy_of(const Arrays& arrays) {
  PromptSet set;
  set.tokens_.assign(arrays.tokens.begin(), arrays.tokens.end());
  set.texts_ = arrays.texts;
  set.token_ends_.assign(arrays.token_ends.begin(), arrays.token_ends.end());
  set.row_ends_.assign(arrays.row_ends.begin(), arrays.row_ends.end());
  set.prefill_ends_.assign(arrays.prefill_ends.begin(), arrays.prefill_ends.end());
  for (std::int64_t i = 0; i < set.size(); ++i) {
    set.longest_ = std::max(set.longest_, static_cast<std::int64_t>(set.tokens(i).size()));
  }
  return set;
}

Json question_in(const Json& row, const ColumnOptions& columns) {
  const std::string_view column = prompt_column_of(row, columns);
  if (is_text(row, column)) return text_in(row, column);
  Json messages = messages_in(row, column);
  add_system_prompt(messages, columns);
  if (messages.size() > 1 && messages.back()["role"] == "assistant") messages.erase(messages.size() - 1);
  return messages;
}

PromptSet encode_prompts(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                         const PromptOptions& options, EncodingReport& report) {
  if (options.max_prompt_length < 0) {
    throw Error("max_prompt_length", text_of("is ", options.max_prompt_length), "it must be above 0");
  }
  const Json variables = template_variables(tokenizer);
  std::vector<EncodedPrompt> slots(kRowsAtOnce);
  PromptSet set;
  const std::vector<std::uint32_t> order = encode_rows(
      source, report,
      [&](std::size_t slot, const Json& row) {
        slots[slot] = encode_prompt(row, tokenizer, chat_template, variables, options);
      },
      [&](std::size_t slot) {
        const EncodedPrompt& encoded = slots[slot];
        set.add(encoded.prompt);
        ++report.examples;
        report.tokens += static_cast<std::int64_t>(encoded.prompt.tokens.size());
        report.cut += encoded.is_cut ? 1 : 0;
      });
  if (order.empty()) return set;
  PromptSet ordered;
  for (const std::uint32_t prompt : order) ordered.add(set.copy(prompt));
  return ordered;
}

}  // namespace hone
