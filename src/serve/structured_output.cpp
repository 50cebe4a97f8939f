#include "serve/structured_output.h"

#include <optional>
#include <utility>

#include "core/json_value.h"
#include "serve/generation_request.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"

namespace hone {
namespace {

constexpr const char* kAnyObject = R"({"type": "object"})";

void ask_for(GenerationRequest& request, GrammarSpec spec, const std::string& param) {
  if (request.grammar)
    throw RequestError(param, text_of("is given in addition to ", request.grammar->param), "leave one of them out");
  request.grammar = RequestedGrammar{std::move(spec), param};
}

// A schema may be an object, or the text of one.
std::string schema_text(const Json& schema, const std::string& param) {
  if (schema.is_string()) return schema.get<std::string>();
  if (!schema.is_object() && !schema.is_boolean()) RequestParameters::refuse(param, schema, "a JSON schema");
  return schema.dump();
}

// Reads the members that structured_outputs and the parameters guided_* share, which name them with a prefix.
void read_members(RequestParameters& members, const std::string& prefix, GenerationRequest& request) {
  const auto key = [&](const char* name) { return prefix + name; };
  const auto text = [&](const char* name, GrammarKind kind) {
    std::string value;
    if (members.text(key(name).c_str(), value)) ask_for(request, {kind, value}, members.name_of(key(name)));
  };
  if (const Json& schema = members.value(key("json").c_str()); !schema.is_null()) {
    const std::string param = members.name_of(key("json"));
    ask_for(request, {GrammarKind::kJsonSchema, schema_text(schema, param)}, param);
  }
  text("regex", GrammarKind::kRegex);
  text("grammar", GrammarKind::kGrammar);
  if (const Json& choice = members.value(key("choice").c_str()); !choice.is_null()) {
    const std::string param = members.name_of(key("choice"));
    if (!choice.is_array()) RequestParameters::refuse(param, choice, "an array of strings");
    ask_for(request, {GrammarKind::kChoice, choice.dump()}, param);
  }
  bool any_object = false;
  if (members.boolean(key("json_object").c_str(), any_object) && any_object)
    ask_for(request, {GrammarKind::kJsonSchema, kAnyObject}, members.name_of(key("json_object")));
}

std::string tool_name(const Json& tool, std::size_t index) {
  const Json function = tool.value("function", Json());
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
    throw RequestError(text_of("tools[", index, "].function.name"), "is not a string");
  return function["name"].get<std::string>();
}

}  // namespace

void read_response_format(const Json& format, const std::string& param, GenerationRequest& request) {
  if (format.is_null()) return;
  if (!format.is_object()) RequestParameters::refuse(param, format, "an object");
  RequestParameters members(format, param + ".");
  std::string type;
  if (!members.text("type", type)) throw RequestError(param + ".type", "is missing");
  if (type == "structural_tag") {
    ask_for(request, {GrammarKind::kStructuralTag, format.dump()}, param);
    return;
  }
  if (type == "json_object") {
    ask_for(request, {GrammarKind::kJsonSchema, kAnyObject}, param);
  } else if (type == "json_schema") {
    const Json& inner = members.value("json_schema");
    if (!inner.is_null() && !inner.is_object()) RequestParameters::refuse(param + ".json_schema", inner, "an object");
    RequestParameters schema(inner.is_null() ? format : inner, inner.is_null() ? param + "." : param + ".json_schema.");
    for (const char* key : {"type", "name", "description"}) schema.ignore(key);
    bool strict = true;
    schema.boolean("strict", strict);
    const Json& value = schema.value("schema");
    if (value.is_null()) throw RequestError(schema.name_of("schema"), "is missing");
    ask_for(request, {GrammarKind::kJsonSchema, schema_text(value, schema.name_of("schema")), strict},
            schema.name_of("schema"));
    schema.refuse_others();
    if (inner.is_null()) return;
  } else if (type != "text") {
    throw RequestError(param + ".type", text_of("\"", type, "\" is not supported"),
                       "use text, json_object, json_schema or structural_tag");
  }
  members.refuse_others();
}

void read_structured_output(RequestParameters& parameters, GenerationRequest& request) {
  read_response_format(parameters.value("response_format"), "response_format", request);
  read_members(parameters, "guided_", request);
  parameters.ignore("guided_decoding_backend");
  parameters.only("guided_whitespace_pattern", nullptr);
  const Json& outputs = parameters.value("structured_outputs");
  if (outputs.is_null()) return;
  if (!outputs.is_object()) RequestParameters::refuse("structured_outputs", outputs, "an object");
  RequestParameters members(outputs, "structured_outputs.");
  read_members(members, "", request);
  if (const Json& tag = members.value("structural_tag"); !tag.is_null()) {
    const std::string param = members.name_of("structural_tag");
    ask_for(request, {GrammarKind::kStructuralTag, schema_text(tag, param)}, param);
  }
  for (const char* key : {"disable_fallback", "disable_any_whitespace", "disable_additional_properties"})
    members.only(key, false);
  members.only("whitespace_pattern", nullptr);
  members.refuse_others();
}

RequestedGrammar grammar_of_calls(const Json& tools, const DemandedCall& call, std::string_view chat_template) {
  const bool tagged = chat_template.find("<tool_call>") != std::string_view::npos;
  Json tags = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string name = tool_name(tools[i], i);
    if (!call.tool.empty() && name != call.tool) continue;
    const Json arguments = tools[i]["function"].value("parameters", Json());
    const std::string start = tagged ? "<tool_call>\n{\"name\": " : "{\"name\": ";
    tags.push_back(
        {{"type", "tag"},
         {"begin", start + Json(name).dump() + (tagged ? ", \"arguments\": " : ", \"parameters\": ")},
         {"content",
          {{"type", "json_schema"},
           {"json_schema", arguments.is_null() || arguments.empty() ? Json{{"type", "object"}} : arguments}}},
         {"end", tagged ? "}\n</tool_call>" : "}"}});
  }
  if (tags.empty())
    throw RequestError(call.param, call.tool.empty() ? "needs tools" : text_of("no tool is named \"", call.tool, "\""));
  const Json format{{"type", "tags_with_separator"},
                    {"tags", std::move(tags)},
                    {"separator", tagged ? "\n" : "; "},
                    {"at_least_one", true},
                    {"stop_after_first", !call.tool.empty()}};
  return {{GrammarKind::kStructuralTag, Json{{"type", "structural_tag"}, {"format", format}}.dump()}, call.param};
}

}  // namespace hone
