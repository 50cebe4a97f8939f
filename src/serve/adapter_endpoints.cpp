// Adapters by name, in vLLM's form.
// Source: https://docs.vllm.ai/en/latest/features/lora.html
#include <algorithm>

#include "core/json_value.h"
#include "serve/endpoints.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"

namespace hone {
namespace {

AdapterTable& table_of(const Service& service) {
  if (service.model().adapters == nullptr)
    throw RequestError({}, "this server has no slots for adapters", "start it with --max_loras", 400);
  return *service.model().adapters;
}

void confirm(ServerReply& reply, const std::string& name, std::string_view what) {
  reply.send({.status = 200,
              .body = text_of("Success: LoRA adapter '", name, "' ", what, " successfully."),
              .content_type = "text/plain; charset=utf-8"});
}

std::string required_text(RequestParameters& parameters, const char* key) {
  std::string text;
  parameters.text(key, text);
  if (text.empty()) throw RequestError(key, "is missing");
  return text;
}

}  // namespace

void answer_load_adapter(const Service& service, const ServerRequest& request,
                         const std::shared_ptr<ServerReply>& reply) {
  const Json body = parse_body(request.body);
  RequestParameters parameters(body);
  const std::string name = required_text(parameters, "lora_name");
  const std::string path = required_text(parameters, "lora_path");
  bool replaces = false;
  parameters.boolean("load_inplace", replaces);
  parameters.refuse_others();
  AdapterTable& table = table_of(service);
  if (std::ranges::find(service.model().names, name) != service.model().names.end())
    throw RequestError("lora_name", text_of("\"", name, "\" is a name of the base model"));
  table.load(name, path, replaces);
  confirm(*reply, name, "added");
}

void answer_unload_adapter(const Service& service, const ServerRequest& request,
                           const std::shared_ptr<ServerReply>& reply) {
  const Json body = parse_body(request.body);
  RequestParameters parameters(body);
  const std::string name = required_text(parameters, "lora_name");
  parameters.ignore("lora_int_id");
  parameters.refuse_others();
  if (!table_of(service).unload(name))
    throw RequestError("lora_name", text_of("\"", name, "\" is not loaded"), {}, 404);
  confirm(*reply, name, "removed");
}

}  // namespace hone
