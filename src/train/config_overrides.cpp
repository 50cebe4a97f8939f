#include "train/config_overrides.h"

#include <charconv>
#include <string>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "core/yaml.h"

namespace hone {
namespace {

constexpr const char* kOverridesKey = "config_overrides";

template <class Number>
Json number_of(std::string_view text, std::string_view key, std::string_view expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(kOverridesKey, text_of(key, " is ", shown(text), ", expected ", expected));
  }
  return value;
}

Json value_like(const Json& old, std::string_view text, std::string_view key) {
  if (old.is_boolean()) {
    const bool yes = text == "1" || yaml_boolean(text) == true;
    if (!yes && text != "0" && yaml_boolean(text) != false) {
      throw Error(kOverridesKey, text_of(key, " is ", shown(text), ", expected true or false"));
    }
    return yes;
  }
  if (old.is_number_integer()) return number_of<std::int64_t>(text, key, "a whole number");
  if (old.is_number()) return number_of<double>(text, key, "a number");
  if (old.is_string()) return std::string(text);
  throw Error(kOverridesKey, text_of(key, " is ", old.type_name(), " in the configuration"),
              "numbers, text, true and false can be replaced; write others into the file");
}

}  // namespace

void override_config(Json& config, std::string_view overrides) {
  for (const std::string& entry : split(overrides, ',')) {
    const std::string_view pair = trim(entry);
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      throw Error(kOverridesKey, text_of("expected key=value, saw ", shown(pair)), "for example num_hidden_layers=4");
    }
    const std::string key(trim(pair.substr(0, equals)));
    if (!config.contains(key)) {
      std::vector<std::string> keys;
      for (const auto& item : config.items()) keys.push_back(item.key());
      const std::string near = nearest_name(key, keys);
      throw Error(kOverridesKey, text_of(shown(key), " is not in the configuration"),
                  near.empty() ? "write it into the file" : text_of("did you mean ", near, "?"));
    }
    config[key] = value_like(config[key], trim(pair.substr(equals + 1)), key);
  }
}

}  // namespace hone
