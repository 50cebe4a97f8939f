#include "serve/request_parameters.h"

#include "core/json_value.h"
#include "serve/request_error.h"

namespace hone {

namespace {

thread_local ParameterRecorder* recorder = nullptr;

}  // namespace

ParameterRecorder::ParameterRecorder() : schemas_(std::make_unique<Json>(Json::object())), outer_(recorder) {
  recorder = this;
}

ParameterRecorder::~ParameterRecorder() { recorder = outer_; }

// A type that is known counts more than a value of any type.
void RequestParameters::record(const char* key, const Json& schema) const {
  if (recorder == nullptr || !prefix_.empty()) return;
  Json& known = (*recorder->schemas_)[key];
  if (known.is_null() || known.empty()) known = schema;
}

const Json& RequestParameters::value(const char* key) {
  static const Json null;
  known_.insert(key);
  record(key, Json::object());
  const auto found = body_.find(key);
  return found == body_.end() ? null : *found;
}

bool RequestParameters::boolean(const char* key, bool& result) {
  record(key, {{"type", "boolean"}});
  const Json& found = value(key);
  if (found.is_null()) return false;
  if (!found.is_boolean()) refuse(name_of(key), found, "true or false");
  result = found.get<bool>();
  return true;
}

bool RequestParameters::integer(const char* key, std::int64_t& result, std::int64_t least, std::int64_t most) {
  record(key, {{"type", "integer"}, {"minimum", least}, {"maximum", most}});
  const Json& found = value(key);
  if (found.is_null()) return false;
  result = checked_integer(found, name_of(key), least, most);
  return true;
}

bool RequestParameters::number(const char* key, double& result, double least, double most) {
  record(key, {{"type", "number"}, {"minimum", least}, {"maximum", most}});
  const Json& found = value(key);
  if (found.is_null()) return false;
  if (!found.is_number()) refuse(name_of(key), found, "a number");
  result = found.get<double>();
  if (!(result >= least && result <= most))
    throw RequestError(name_of(key), text_of("is ", found.dump()), text_of("expected ", least, " to ", most));
  return true;
}

bool RequestParameters::text(const char* key, std::string& result) {
  record(key, {{"type", "string"}});
  const Json& found = value(key);
  if (found.is_null()) return false;
  if (!found.is_string()) refuse(name_of(key), found, "a string");
  result = found.get<std::string>();
  return true;
}

std::int64_t RequestParameters::checked_integer(const Json& found, const std::string& param, std::int64_t least,
                                                std::int64_t most) {
  if (!found.is_number_integer()) refuse(param, found, "an integer");
  const bool too_large = found.is_number_unsigned() && found.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
  if (too_large || found.get<std::int64_t>() < least || found.get<std::int64_t>() > most)
    throw RequestError(param, text_of("is ", found.dump()), text_of("expected ", least, " to ", most));
  return found.get<std::int64_t>();
}

void RequestParameters::refuse(const std::string& param, const Json& found, std::string_view expected) {
  throw RequestError(param, text_of("is ", found.type_name(), ", expected ", expected));
}

void RequestParameters::only(const char* key, const Json& neutral) {
  record(key, {{"enum", Json::array({neutral, nullptr})}});
  const Json& found = value(key);
  if (!found.is_null() && found != neutral)
    throw RequestError(name_of(key), "is not supported", text_of("leave it out, or give ", neutral.dump()));
}

void RequestParameters::refuse_others() const {
  for (const auto& [key, unused] : body_.items())
    if (!known_.contains(key))
      throw RequestError(name_of(key), "is not a parameter that hone supports", "leave it out");
}

Json parse_body(std::string_view body) {
  Json json;
  try {
    json = parse_json(body, "body");
  } catch (const Error& error) {
    throw RequestError({}, error.what());
  }
  if (!json.is_object()) throw RequestError({}, text_of("body: is ", json.type_name(), ", expected an object"));
  return json;
}

}  // namespace hone
