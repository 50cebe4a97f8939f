#include "text/chat_template.h"

#include "core/error.h"
#include "core/json_value.h"
#include "jinja/parser.h"
#include "jinja/renderer.h"

namespace hone {

struct ChatTemplate::Node {
  Block block;
};

namespace {

// Copies reasoning, which datasets store under several names, to the two names that templates read, as transformers
// does.
Json with_reasoning(const Json& message) {
  const Json* reasoning = nullptr;
  for (const char* key : {"reasoning", "thinking", "reasoning_content"}) {
    const auto found = message.find(key);
    if (found != message.end() && !found->is_null()) reasoning = &*found;
  }
  if (reasoning == nullptr) return message;
  Json aliased{{"thinking", *reasoning}};
  for (const auto& [key, value] : message.items()) aliased[key] = value;
  aliased["reasoning_content"] = *reasoning;
  return aliased;
}

TemplateValue conversation(const Json& messages) {
  if (!messages.is_array())
    throw TemplateFailure(text_of("the messages are ", messages.type_name(), ", expected a list"));
  Json aliased = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object())
      throw TemplateFailure(text_of("a message is ", message.type_name(), ", expected an object"));
    aliased.push_back(with_reasoning(message));
  }
  return TemplateValue::from_json(aliased);
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source)
    : source_(source), root_(std::make_shared<const Node>(Node{parse_template(source)})) {}

RenderedChat ChatTemplate::render(const Json& messages, bool add_generation_prompt, const Json& variables) const {
  const auto globals = std::make_shared<TemplateScope>();
  try {
    // Arguments that a caller of transformers' apply_chat_template omits are None there.
    globals->set("tools", None{});
    globals->set("documents", None{});
    if (!variables.is_null() && !variables.is_object()) throw TemplateFailure("the variables are not an object");
    for (const auto& [name, value] : variables.items()) globals->set(name, TemplateValue::from_json(value));
    globals->set("messages", conversation(messages));
    globals->set("add_generation_prompt", add_generation_prompt);
  } catch (const TemplateFailure& failure) {
    throw Error("chat template", failure.what());
  }
  RenderedTemplate rendered = TemplateRenderer(globals, local_time_).render(root_->block);
  return {std::move(rendered.text), std::move(rendered.generated)};
}

std::string_view chatml_template() {
  return "{%- for message in messages %}\n"
         "{{- '<|im_start|>' + message['role'] + '\\n' }}\n"
         "{%- if message['role'] == 'assistant' %}\n"
         "{%- generation %}{{- message['content'] + '<|im_end|>' }}{%- endgeneration %}\n"
         "{{- '\\n' }}\n"
         "{%- else %}\n"
         "{{- message['content'] + '<|im_end|>\\n' }}\n"
         "{%- endif %}\n"
         "{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n"
         "{{- '<|im_start|>assistant\\n' }}\n"
         "{%- endif %}\n";
}

}  // namespace hone
