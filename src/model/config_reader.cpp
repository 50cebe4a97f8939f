#include "model/config_reader.h"

#include "core/error.h"
#include "core/json_value.h"

namespace hone {

bool ConfigReader::has(std::string_view key) const {
  const auto found = config_.find(key);
  return found != config_.end() && !found->is_null();
}

const Json& ConfigReader::at(std::string_view key) const {
  const auto found = config_.find(key);
  if (found == config_.end()) throw Error(file_, text_of("'", key, "' is missing"));
  return *found;
}

void ConfigReader::fail(std::string_view key, std::string_view expected) const {
  throw Error(file_, text_of("'", key, "' is ", at(key).dump(), ", expected ", expected));
}

std::int64_t ConfigReader::positive(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > static_cast<double>(kMostConfig))
    fail(key, text_of("a positive integer up to ", kMostConfig));
  return value.get<std::int64_t>();
}

std::int64_t ConfigReader::positive(std::string_view key, std::int64_t otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

std::int64_t ConfigReader::not_negative(std::string_view key) const {
  const Json& value = at(key);
  return value.is_number_integer() && value.get<double>() == 0 ? 0 : positive(key);
}

double ConfigReader::number(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_number()) fail(key, "a number");
  return value.get<double>();
}

double ConfigReader::number(std::string_view key, double otherwise) const { return has(key) ? number(key) : otherwise; }

bool ConfigReader::boolean(std::string_view key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  if (!value.is_boolean()) fail(key, "true or false");
  return value.get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::string_view otherwise) const {
  if (!has(key)) return std::string(otherwise);
  const Json& value = at(key);
  if (!value.is_string()) fail(key, "a string");
  return value.get<std::string>();
}

void ConfigReader::require(std::string_view key, bool wanted) const {
  if (boolean(key, wanted) == wanted) return;
  throw Error(file_, text_of("'", key, "': ", wanted ? "false" : "true", " is not supported by hone"));
}

ConfigReader ConfigReader::object(std::string_view key) const {
  if (!at(key).is_object()) fail(key, "an object");
  return ConfigReader(at(key), file_);
}

}  // namespace hone
