// Helpers that read JSON objects and throw errors that name the file and the key. Include this only in .cpp files: it
// includes the whole JSON parser.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"

namespace hone {

// Returns the value of a key, or null if it is absent or `object` is not an object.
inline const Json& member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

// Returns `fallback` if the key is absent or null.
inline bool bool_member(const Json& object, const char* key, bool fallback, std::string_view where) {
  const Json& value = member(object, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) throw Error(where, text_of(key, " is ", value.type_name(), ", expected true or false"));
  return value.get<bool>();
}

inline std::string string_member(const Json& object, const char* key, std::string_view where) {
  const Json& value = member(object, key);
  if (!value.is_string()) throw Error(where, text_of(key, " is ", value.type_name(), ", expected a string"));
  return value.get<std::string>();
}

// Returns the "type" of a part of tokenizer.json.
inline std::string type_member(const Json& object, std::string_view part, std::string_view where) {
  if (!object.is_object())
    throw Error(where, text_of(part, " is ", object.type_name(), ", expected an object or null"));
  const Json& type = member(object, "type");
  if (!type.is_string()) throw Error(where, text_of(part, " has no type"));
  return type.get<std::string>();
}

}  // namespace hone
