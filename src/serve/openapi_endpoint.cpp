// GET /openapi.json: a description of the endpoints, which comes from the table of routes and from the code that reads
// their bodies.
// Source: https://spec.openapis.org/oas/v3.1.0
#include "core/json_value.h"
#include "serve/answer_head.h"
#include "serve/request_parameters.h"
#include "serve/routes.h"

namespace hone {
namespace {

// Returns the schema of a body: the parameters that reading the example meets. Those of the example are required.
Json body_schema(const RouteBody& body) {
  const ParameterRecorder recorder;
  body.parse(body.example);
  Json properties = Json::object();
  for (const auto& [name, schema] : recorder.schemas().items()) {
    properties[name] = schema;
    if (schema.contains("type")) properties[name]["type"] = Json::array({schema["type"], "null"});
  }
  const Json example = parse_json(body.example, "");
  Json required = Json::array();
  for (const auto& [name, value] : example.items()) {
    required.push_back(name);
    if (properties[name].contains("type")) properties[name]["type"] = properties[name]["type"][0];
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false},
          {"examples", Json::array({example})}};
}

Json operation_of(const Route& route, bool has_key) {
  Json operation{{"summary", route.summary}};
  if (route.path.ends_with('*'))
    operation["parameters"] = Json::array(
        {{{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  if (route.method == "POST") {
    const Json schema = route.body.parse != nullptr ? body_schema(route.body) : Json{{"type", "object"}};
    operation["requestBody"] = {{"required", route.body.parse != nullptr},
                                {"content", {{"application/json", {{"schema", schema}}}}}};
  }
  operation["responses"] = {{"200", {{"description", "the answer"}}},
                            {"4XX", {{"description", "a refusal, with the problem in an error object"}}}};
  if (has_key && route.access != Access::kAnyone) operation["security"] = Json::array({{{"key", Json::array()}}});
  return operation;
}

}  // namespace

void answer_openapi(const Service& service, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  const ServiceOptions& options = service.options();
  Json paths = Json::object();
  for (const Route& route : routes()) {
    if (route.access == Access::kControl && !options.allow_weight_updates) continue;
    std::string path(route.path);
    if (path.ends_with('*')) path.replace(path.size() - 1, 1, "{name}");
    Json operation = operation_of(route, !options.api_key.empty());
    paths[path][route.method == "GET" ? "get" : "post"] = std::move(operation);
  }
  Json description{{"openapi", "3.1.0"},
                   {"info", {{"title", "hone serve"}, {"version", options.version}}},
                   {"paths", std::move(paths)}};
  if (!options.api_key.empty())
    description["components"] = {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}};
  reply->send({.status = 200, .body = json_text(description)});
}

}  // namespace hone
