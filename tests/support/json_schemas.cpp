#include "support/json_schemas.h"

#include <algorithm>
#include <string>

#include "core/json_value.h"
#include "core/random.h"
#include "core/unicode.h"

namespace hone::test {
namespace {

class SchemaMaker {
 public:
  explicit SchemaMaker(std::uint64_t seed) : random_(seed, "schema") {}

  Json make(int depth) {
    switch (below(depth > 0 ? 9 : 6)) {
      case 0:
        return {{"type", "integer"}};
      case 1: {
        const auto least = static_cast<std::int64_t>(below(200)) - 100;
        return {{"type", "integer"}, {"minimum", least}, {"maximum", least + static_cast<std::int64_t>(below(500))}};
      }
      case 2:
        return {{"type", below(2) == 0 ? "boolean" : "null"}};
      case 3:
        return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(6)}};
      case 4:
        return {{"enum", {"red", 7, "blå", nullptr, false, "a\"b\\c"}}};
      case 5:
        return {{"const", below(2) == 0 ? Json("only") : Json{{"k", 1}}}};
      case 6:
        return {{"anyOf", {make(depth - 1), make(depth - 1)}}};
      case 7:
        return {{"type", "array"}, {"items", make(depth - 1)}, {"minItems", below(2)}, {"maxItems", 1 + below(3)}};
      default:
        return object(depth);
    }
  }

  Json object(int depth) {
    Json properties = Json::object();
    Json required = Json::array();
    for (std::uint64_t i = below(4) + 1; i > 0; --i) {
      const std::string name = std::string("key \"é_")[below(7)] + std::to_string(i);
      const std::string valid = is_valid_utf8(name) ? name : "k" + std::to_string(i);
      properties[valid] = make(depth - 1);
      if (below(2) == 0) required.push_back(valid);
    }
    return {{"type", "object"}, {"properties", properties}, {"required", required}};
  }

 private:
  std::uint64_t below(std::uint64_t most) { return random_.below(at_++, most); }

  RandomStream random_;
  std::uint64_t at_ = 0;
};

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

// Returns true if a bound is absent or kept.
bool keeps(const Json& schema, const char* least, const char* most, std::int64_t value) {
  return value >= schema.value(least, value) && value <= schema.value(most, value);
}

}  // namespace

Json random_schema(std::uint64_t seed) { return SchemaMaker(seed).object(3); }

bool satisfies(const Json& value, const Json& schema, bool strict) {
  if (schema.contains("anyOf"))
    return std::ranges::any_of(schema["anyOf"], [&](const Json& one) { return satisfies(value, one, strict); });
  if (schema.contains("const")) return value == schema["const"];
  if (schema.contains("enum")) return std::ranges::find(schema["enum"], value) != schema["enum"].end();
  if (!has_type(value, schema["type"].get<std::string>())) return false;
  if (value.is_number()) return keeps(schema, "minimum", "maximum", value.get<std::int64_t>());
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto length = std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
    return keeps(schema, "minLength", "maxLength", length);
  }
  if (value.is_array())
    return keeps(schema, "minItems", "maxItems", std::ssize(value)) &&
           std::ranges::all_of(value, [&](const Json& item) { return satisfies(item, schema["items"], strict); });
  if (!value.is_object()) return true;
  for (const Json& name : schema["required"])
    if (!value.contains(name.get<std::string>())) return false;
  for (const auto& [name, property] : value.items()) {
    const bool known = schema["properties"].contains(name);
    if (known ? !satisfies(property, schema["properties"][name], strict) : strict) return false;
  }
  return true;
}

}  // namespace hone::test
