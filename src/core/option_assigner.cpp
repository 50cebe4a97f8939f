#include "core/option_assigner.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/option_value.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kMostMeant = 6;  // longest list of suggestions in an error

bool is_disabling(const ForeignKey& key, const YamlValue& value) {
  if (value.kind == YamlValue::Kind::kNull) return true;
  if (value.kind != YamlValue::Kind::kScalar) {
    return std::ranges::all_of(value.items, [&](const YamlValue& item) { return is_disabling(key, item); });
  }
  const std::string& text = value.scalar;
  if (text.empty() || text == "none" || text == "None" || yaml_boolean(text) == false) return true;
  return !key.harmless.empty() && std::ranges::count(alternatives(key.harmless), text) > 0;
}

}  // namespace

std::string OptionPlace::text() const {
  return file.empty() ? "--" + shortened(key) : text_of(file, ":", line, ": ", shortened(key));
}

void OptionAssigner::assign(const std::string& key, const YamlValue& value, const OptionPlace& place) {
  if (key == "env") return read_environment(value, place);
  if (!skipped_keys_.empty() && skipped_keys_.contains(canonical(key))) return;
  if (const Option* option = table_.find(key)) {
    set_option(*option, value, place.text());
    input_.places[option->name] = place.text();
  } else if (table_.is_map(key)) {
    read_map(key, value, place);
  } else if (const ForeignKey* other = find_foreign(key)) {
    read_foreign(*other, value, place);
  } else {
    fail_unknown(key, place);
  }
}

std::string OptionAssigner::canonical(const std::string& key) const {
  const Option* option = table_.find(key);
  return option != nullptr ? option->name : key;
}

void OptionAssigner::collect(const std::string& key, const YamlValue& value, OptionKeySet& keys) const {
  if (key == "env") return;
  if (table_.find(key) != nullptr || !table_.is_map(key)) {
    keys.insert(canonical(key));
    return;
  }
  for (std::size_t i = 0; i < value.keys.size(); ++i) collect(text_of(key, ".", value.keys[i]), value.items[i], keys);
}

const ForeignKey* OptionAssigner::find_foreign(std::string_view key) const {
  const auto at = std::ranges::find(foreign_, key, &ForeignKey::name);
  return at == foreign_.end() ? nullptr : &*at;
}

void OptionAssigner::fail_unknown(const std::string& key, const OptionPlace& place) const {
  std::vector<std::string> known = table_.names();
  for (const ForeignKey& other : foreign_) known.emplace_back(other.name);
  std::vector<std::string> meant;
  for (const std::string_view name : suggested_keys(key)) {
    if (table_.find(name) != nullptr) meant.emplace_back(name);
  }
  if (meant.empty()) {  // a prefix of a key is more likely an abbreviation than a typo
    std::ranges::copy_if(known, std::back_inserter(meant),
                         [&](const auto& name) { return name.starts_with(key + "_"); });
  }
  if (meant.empty() || meant.size() > kMostMeant) meant = {nearest_name(key, known)};
  const std::string fix = meant[0].empty() ? "--help lists the keys" : "";
  if (place.file.empty()) std::ranges::for_each(meant, [](std::string& name) { name.insert(0, "--"); });
  throw Error(place.text(), "unknown key", fix.empty() ? text_of("did you mean ", join(meant, " or "), "?") : fix);
}

void OptionAssigner::read_environment(const YamlValue& value, const OptionPlace& place) {
  if (value.kind == YamlValue::Kind::kNull) return;
  if (value.kind != YamlValue::Kind::kMap) {
    throw Error(place.text(), text_of("expected a map of environment variables, saw ", shown(value)));
  }
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const YamlValue& item = value.items[i];
    const std::string& name = value.keys[i];
    if (item.kind == YamlValue::Kind::kList || item.kind == YamlValue::Kind::kMap) {
      throw Error(place.below(name, item.line).text(), text_of("expected text, saw ", shown(item)));
    }
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
      throw Error(place.text(), text_of(shown(name), " cannot be the name of an environment variable"));
    }
    input_.environment.emplace_back(name, item.scalar);
  }
}

void OptionAssigner::read_map(const std::string& key, const YamlValue& value, const OptionPlace& place) {
  if (value.kind == YamlValue::Kind::kNull) return;
  if (value.kind != YamlValue::Kind::kMap) throw Error(place.text(), text_of("expected a map, saw ", shown(value)));
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    assign(text_of(key, ".", value.keys[i]), value.items[i], place.below(value.keys[i], value.items[i].line));
  }
}

void OptionAssigner::read_foreign(const ForeignKey& key, const YamlValue& value, const OptionPlace& place) {
  if (is_disabling(key, value)) return;
  switch (key.kind) {
    case ForeignKey::Kind::kNoEffect:
      input_.notices.push_back({std::string(key.name), std::string(key.note)});
      return;
    case ForeignKey::Kind::kNotYet:
      throw Error(place.text(), text_of(key.note, " not implemented yet, saw ", shown(value)), "remove the key");
    case ForeignKey::Kind::kNever:
      throw Error(place.text(), text_of(key.note, ", saw ", shown(value)), "remove the key");
  }
}

}  // namespace hone
