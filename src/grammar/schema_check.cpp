#include "grammar/schema_check.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

// Each of these decides alone: xgrammar reads the first that a schema has, in this order.
constexpr std::array<std::string_view, 6> kDeciding{"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::array<std::string_view, 10> kIgnored{"not",
                                                    "if",
                                                    "then",
                                                    "else",
                                                    "uniqueItems",
                                                    "minContains",
                                                    "contains",
                                                    "maxContains",
                                                    "dependentRequired",
                                                    "dependentSchemas"};
// These say nothing about a value, or name schemas for others.
constexpr std::array<std::string_view, 16> kSilent{
    "title",    "description", "default", "examples",    "$schema", "$id",     "$comment", "deprecated",
    "readOnly", "writeOnly",   "$defs",   "definitions", "$anchor", "example", "nullable", "discriminator"};

bool has_element(const auto& list, std::string_view key) { return std::ranges::find(list, key) != list.end(); }

[[noreturn]] void refuse_keyword(std::string_view where, std::string_view key, std::string_view what) {
  throw Error(text_of(where, " has \"", key, "\", which ", what));
}

// Returns true if a schema states its type in one of the ways that count next to a type outside.
bool states_type(const Json& schema) {
  return schema.is_object() && (schema.contains("type") || std::ranges::any_of(kDeciding, [&](std::string_view key) {
                                  return schema.contains(key);
                                }));
}

// Refuses keywords next to one that decides alone.
void check_siblings(const Json& schema, std::string_view where) {
  const auto* deciding = std::ranges::find_if(kDeciding, [&](std::string_view key) { return schema.contains(key); });
  if (deciding == kDeciding.end()) return;
  for (const auto& [key, value] : schema.items()) {
    if (key == *deciding || has_element(kSilent, key)) continue;
    const Json& options = schema[std::string(*deciding)];
    const bool is_list = options.is_array() && *deciding != "enum";
    const bool repeats_type =
        key == "type" && *deciding != "$ref" && (!is_list || std::ranges::all_of(options, states_type));
    if (!repeats_type) refuse_keyword(where, key, text_of("is not supported next to \"", *deciding, "\""));
  }
}

void check_schema_at(const Json& schema, const std::string& where) {
  if (!schema.is_object()) return;
  for (const std::string_view key : kIgnored) {
    const auto found = schema.find(key);
    if (found != schema.end() && *found != false) refuse_keyword(where, key, "is not supported");
  }
  check_siblings(schema, where);
  for (const auto& [key, value] : schema.items()) {
    if (key == "const" || key == "enum" || key == "default" || key == "examples" || key == "example") continue;
    const bool named = key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions";
    const bool inner = named || has_element(kDeciding, key) || key == "items" || key == "prefixItems" ||
                       key == "additionalProperties" || key == "additionalItems" || key == "propertyNames" ||
                       key == "unevaluatedProperties" || key == "unevaluatedItems";
    if (!inner || !value.is_structured()) continue;
    if (!named && value.is_object()) {
      check_schema_at(value, text_of(where, ".", key));
    } else {
      for (const auto& [name, part] : value.items()) check_schema_at(part, text_of(where, ".", key, ".", name));
    }
  }
}

}  // namespace

void check_schema(const Json& schema) { check_schema_at(schema, "schema"); }

}  // namespace hone
