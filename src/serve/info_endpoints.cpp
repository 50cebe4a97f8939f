// Endpoints that answer without the engine.
#include <algorithm>
#include <limits>

#include "core/json_value.h"
#include "serve/answer_head.h"
#include "serve/chat_messages.h"
#include "serve/endpoints.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"

namespace hone {
namespace {

Json model_json(const ServedModel& model, const std::string& name, const ServedAdapter* adapter) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "hone"},
          {"root", adapter != nullptr ? adapter->path : model.path},
          {"parent", adapter != nullptr ? Json(model.names.front()) : Json()},
          {"max_model_len", model.max_model_len}};
}

}  // namespace

void answer_health(const Service&, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  reply->send({.status = 200, .body = {}});
}

void answer_version(const Service& service, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  Json answer{{"version", service.options().version}};
  if (!service.options().runs.empty()) answer["runs"] = true;
  reply->send({.status = 200, .body = json_text(answer)});
}

void answer_metrics(const Service& service, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  reply->send({.status = 200, .body = service.metrics().text(), .content_type = "text/plain; version=0.0.4"});
}

void answer_models(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  const ServedModel& model = service.model();
  constexpr std::string_view kBegin = "/v1/models/";
  if (request.path().starts_with(kBegin)) {
    const std::string name = answering_name(model, std::string(request.path().substr(kBegin.size())));
    return reply->send({.status = 200, .body = json_text(model_json(model, name, adapter_named(model, name).get()))});
  }
  Json list = Json::array();
  for (const std::string& name : model.names) list.push_back(model_json(model, name, nullptr));
  if (model.adapters != nullptr)
    for (const auto& adapter : model.adapters->all()) list.push_back(model_json(model, adapter->name, adapter.get()));
  reply->send({.status = 200, .body = json_text({{"object", "list"}, {"data", std::move(list)}})});
}

// Tokens of a text (`prompt`) or of messages, in vLLM's form.
void answer_tokenize(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  const ServedModel& model = service.model();
  const Json body = parse_body(request.body);
  RequestParameters parameters(body);
  std::string name;
  std::string text;
  parameters.text("model", name);
  (void)answering_name(model, name);
  const bool is_text = parameters.text("prompt", text);
  bool add_special_tokens = is_text;
  bool add_generation_prompt = true;
  bool return_texts = false;
  parameters.boolean("add_special_tokens", add_special_tokens);
  parameters.boolean("return_token_strs", return_texts);
  if (!is_text) {
    parameters.boolean("add_generation_prompt", add_generation_prompt);
    Json variables = parameters.value("chat_template_kwargs");
    if (variables.is_null()) variables = Json::object();
    if (!variables.is_object()) RequestParameters::refuse("chat_template_kwargs", variables, "an object");
    if (const Json& tools = parameters.value("tools"); tools.is_array() && !tools.empty()) variables["tools"] = tools;
    const Json messages = template_messages(parameters.value("messages"));
    text = rendered_prompt(model, messages, variables, add_generation_prompt);
  }
  parameters.refuse_others();
  const std::vector<TokenId> tokens = encoded(model, text, add_special_tokens, is_text ? "prompt" : "messages");
  Json answer{{"count", tokens.size()}, {"max_model_len", model.max_model_len}, {"tokens", tokens}};
  if (return_texts)
    for (const TokenId token : tokens) answer["token_strs"].push_back(token_text(model.tokenizer, token));
  reply->send({.status = 200, .body = json_text(answer)});
}

void answer_detokenize(const Service& service, const ServerRequest& request,
                       const std::shared_ptr<ServerReply>& reply) {
  const ServedModel& model = service.model();
  const Json body = parse_body(request.body);
  RequestParameters parameters(body);
  std::string name;
  parameters.text("model", name);
  (void)answering_name(model, name);
  const Json& list = parameters.value("tokens");
  if (!list.is_array()) RequestParameters::refuse("tokens", list, "an array of token ids");
  std::vector<TokenId> tokens;
  for (const Json& id : list)
    tokens.push_back(static_cast<TokenId>(
        RequestParameters::checked_integer(id, "tokens", 0, std::max<std::int64_t>(model.vocab_size - 1, 0))));
  parameters.refuse_others();
  reply->send({.status = 200, .body = json_text({{"prompt", model.tokenizer.decode(tokens)}})});
}

}  // namespace hone
