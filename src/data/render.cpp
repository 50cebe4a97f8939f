#include "data/render.h"

#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kNowhere = std::string::npos;

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// Returns where the last message ends in the rendered text. As in transformers, what the template adds after it is
// dropped. The message's trailing white space is kept if the template kept it.
std::size_t end_of_last_message(const std::string& rendered, const std::string& content) {
  const std::string core(trim(content));
  const std::size_t at = rendered.rfind(core);
  if (at == kNowhere) throw Error("the template changes the last message, so it cannot be continued");
  const std::size_t lead = content.find(core);
  const std::string tail = content.substr(lead);
  return at + (rendered.compare(at, tail.size(), tail) == 0 ? tail.size() : core.size());
}

void choose_targets(RenderedRow& out, std::size_t completion_begin, std::vector<ByteRange> assistant, LossOn loss) {
  const bool has_completion = completion_begin != kNowhere;
  if (loss == LossOn::kAll || (loss == LossOn::kAutomatic && !has_completion)) return;
  out.all_targets = false;
  if (loss == LossOn::kAssistant) {
    if (assistant.empty()) throw Error("no assistant tokens (does the chat template have a {% generation %} block?)");
    out.targets = std::move(assistant);
    return;
  }
  if (!has_completion) throw Error("completion_only_loss needs the columns prompt and completion");
  out.targets = {{completion_begin, out.text.size()}};
}

RenderedRow render_completion(Json messages, const Json& completion, const ChatTemplate& chat_template,
                              const Json& variables, LossOn loss) {
  const std::string prompt = render_prompt(messages, chat_template, variables).text;
  for (const Json& item : completion) messages.push_back(item);
  RenderedChat whole = chat_template.render(messages, false, variables);
  if (!whole.text.starts_with(prompt)) {
    throw Error("the template renders the prompt differently when a completion follows it");
  }
  RenderedRow out{.text = std::move(whole.text)};
  choose_targets(out, prompt.size(), std::move(whole.assistant), loss);
  return out;
}

RenderedRow render_prompt_completion(const Json& row, const ChatTemplate& chat_template, const Json& variables,
                                     const EncodeOptions& options) {
  if (is_text(row, "prompt")) {
    const std::string& prompt = text_in(row, "prompt");
    RenderedRow out{.text = prompt + text_in(row, "completion"), .is_plain = true};
    choose_targets(out, prompt.size(), {}, options.loss);
    return out;
  }
  Json messages = messages_in(row, "prompt");
  add_system_prompt(messages, options.columns);
  return render_completion(std::move(messages), messages_in(row, "completion"), chat_template, variables, options.loss);
}

}  // namespace

Json row_variables(const Json& row, const Json& variables) {
  Json all = variables;
  const auto tools = row.find("tools");
  if (tools != row.end() && tools->is_array() && !tools->empty()) all["tools"] = *tools;
  const auto more = row.find("chat_template_kwargs");
  if (more != row.end() && more->is_object()) all.update(*more);
  return all;
}

RenderedPrompt render_prompt(const Json& messages, const ChatTemplate& chat_template, const Json& variables) {
  const Json& last = messages.back();
  if (last.at("role") != "assistant")
    return {.text = chat_template.render(messages, true, variables).text, .prefill = ""};
  const auto content = last.find("content");
  if (content == last.end() || !content->is_string() || trim(content->get_ref<const std::string&>()).empty()) {
    throw Error("the prompt's last message is the assistant's and has no text to continue");
  }
  std::string text = chat_template.render(messages, false, variables).text;
  text.resize(end_of_last_message(text, content->get_ref<const std::string&>()));
  return {.text = std::move(text), .prefill = content->get<std::string>()};
}

RenderedRow render_row(const Json& row, const ChatTemplate& chat_template, const Json& base_variables,
                       const EncodeOptions& options) {
  const RowKind kind = kind_of(row, options.columns);
  if (kind == RowKind::kText) {
    RenderedRow out{.text = text_in(row, options.columns.text_field), .is_plain = true};
    choose_targets(out, kNowhere, {}, options.loss);
    return out;
  }
  const Json variables = row_variables(row, base_variables);
  if (kind == RowKind::kPromptCompletion) return render_prompt_completion(row, chat_template, variables, options);
  if (kind == RowKind::kProblemSolution) {
    Json messages = Json::array({message("user", text_in(row, prompt_column_of(row, options.columns)))});
    add_system_prompt(messages, options.columns);
    const Json completion = Json::array({message("assistant", text_in(row, solution_column_of(row)))});
    return render_completion(std::move(messages), completion, chat_template, variables, options.loss);
  }
  Json messages = messages_in(row, row.contains("messages") ? "messages" : "conversations");
  add_system_prompt(messages, options.columns);
  RenderedChat chat = chat_template.render(messages, false, variables);
  RenderedRow out{.text = std::move(chat.text)};
  choose_targets(out, kNowhere, std::move(chat.assistant), options.loss);
  return out;
}

}  // namespace hone
