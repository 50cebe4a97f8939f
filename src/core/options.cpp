#include "core/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>

#include "core/error.h"
#include "core/json_value.h"
#include "core/option_value.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kMostMeant = 6;  // keys that an error lists

std::string with_underscores(std::string_view key) {
  std::string name(key);
  std::ranges::replace(name, '-', '_');
  return name;
}

bool asks_for_nothing(const ForeignKey& key, const YamlValue& value) {
  if (value.kind == YamlValue::Kind::null) return true;
  if (value.kind != YamlValue::Kind::scalar) {
    return std::ranges::all_of(value.items, [&](const YamlValue& item) { return asks_for_nothing(key, item); });
  }
  const std::string& text = value.scalar;
  if (text.empty() || text == "none" || text == "None" || yaml_boolean(text) == false) return true;
  return !key.harmless.empty() && std::ranges::count(alternatives(key.harmless), text) > 0;
}

// Where a value was given: "FILE:LINE: KEY" or "--KEY".
struct Place {
  std::string file;  // empty: the command line
  int line = 0;
  std::string key;

  [[nodiscard]] std::string text() const {
    return file.empty() ? "--" + shortened(key) : text_of(file, ":", line, ": ", shortened(key));
  }
  [[nodiscard]] Place below(const std::string& name, int at) const { return {file, at, key + "." + name}; }
};

// A key with its value, as one place gives it.
struct Assignment {
  std::string key;
  YamlValue value;
  Place place;
};

using KeySet = std::set<std::string, std::less<>>;

// Gives values to the options of a table, from wherever they are read.
class Assigner {
 public:
  Assigner(const OptionTable& table, std::span<const ForeignKey> foreign, OptionInput& input)
      : table_(table), foreign_(foreign), input_(input) {}

  // Leaves keys out that a stronger place gives: their values are not looked at.
  void leave_out(KeySet keys) { left_out_ = std::move(keys); }

  void assign(const std::string& key, const YamlValue& value, const Place& place) {
    if (key == "env") return read_environment(value, place);
    if (!left_out_.empty() && left_out_.contains(canonical(key))) return;
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

  [[nodiscard]] std::string canonical(const std::string& key) const {
    const Option* option = table_.find(key);
    return option != nullptr ? option->name : key;
  }

  // The keys that an assignment gives: a map's own, so that those it does not name stay as they are.
  void collect(const std::string& key, const YamlValue& value, KeySet& keys) const {
    if (key == "env") return;
    if (table_.find(key) != nullptr || !table_.is_map(key)) {
      keys.insert(canonical(key));
      return;
    }
    for (std::size_t i = 0; i < value.keys.size(); ++i) collect(text_of(key, ".", value.keys[i]), value.items[i], keys);
  }

  [[nodiscard]] const ForeignKey* find_foreign(std::string_view key) const {
    const auto at = std::ranges::find(foreign_, key, &ForeignKey::name);
    return at == foreign_.end() ? nullptr : &*at;
  }

  [[noreturn]] void fail_unknown(const std::string& key, const Place& place) const {
    std::vector<std::string> known = table_.names();
    for (const ForeignKey& other : foreign_) known.emplace_back(other.name);
    std::vector<std::string> meant;
    for (const std::string_view name : keys_meant_by(key)) {
      if (table_.find(name) != nullptr) meant.emplace_back(name);
    }
    if (meant.empty()) {  // a word that a key begins with is likelier cut short than misspelt
      std::ranges::copy_if(known, std::back_inserter(meant),
                           [&](const auto& name) { return name.starts_with(key + "_"); });
    }
    if (meant.empty() || meant.size() > kMostMeant) meant = {nearest_name(key, known)};
    const std::string fix = meant[0].empty() ? "--help lists the keys" : "";
    if (place.file.empty()) std::ranges::for_each(meant, [](std::string& name) { name.insert(0, "--"); });
    throw Error(place.text(), "unknown key", fix.empty() ? text_of("did you mean ", join(meant, " or "), "?") : fix);
  }

 private:
  void read_environment(const YamlValue& value, const Place& place) {
    if (value.kind == YamlValue::Kind::null) return;
    if (value.kind != YamlValue::Kind::map) {
      throw Error(place.text(), text_of("expected a map of environment variables, saw ", shown(value)));
    }
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      const YamlValue& item = value.items[i];
      const std::string& name = value.keys[i];
      if (item.kind == YamlValue::Kind::list || item.kind == YamlValue::Kind::map) {
        throw Error(place.below(name, item.line).text(), text_of("expected text, saw ", shown(item)));
      }
      if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
        throw Error(place.text(), text_of(shown(name), " cannot be the name of an environment variable"));
      }
      input_.environment.emplace_back(name, item.scalar);
    }
  }

  void read_map(const std::string& key, const YamlValue& value, const Place& place) {
    if (value.kind == YamlValue::Kind::null) return;
    if (value.kind != YamlValue::Kind::map) throw Error(place.text(), text_of("expected a map, saw ", shown(value)));
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      assign(text_of(key, ".", value.keys[i]), value.items[i], place.below(value.keys[i], value.items[i].line));
    }
  }

  void read_foreign(const ForeignKey& key, const YamlValue& value, const Place& place) {
    if (asks_for_nothing(key, value)) return;
    switch (key.kind) {
      case ForeignKey::Kind::no_effect:
        input_.notices.push_back({std::string(key.name), std::string(key.note)});
        return;
      case ForeignKey::Kind::not_yet:
        throw Error(place.text(), text_of(key.note, " not implemented yet, saw ", shown(value)), "remove the key");
      case ForeignKey::Kind::never:
        throw Error(place.text(), text_of(key.note, ", saw ", shown(value)), "remove the key");
    }
  }

  const OptionTable& table_;
  std::span<const ForeignKey> foreign_;
  OptionInput& input_;
  KeySet left_out_;
};

// Walks the arguments of a command line. Values are not judged before apply().
class FlagReader {
 public:
  FlagReader(const OptionTable& table, std::span<const std::string> arguments, std::span<const ForeignKey> foreign,
             OptionInput& input)
      : table_(table), arguments_(arguments), input_(input), assigner_(table, foreign, input) {}

  // The keys that the flags give.
  [[nodiscard]] KeySet keys() const {
    KeySet keys;
    for (const Assignment& flag : flags_) assigner_.collect(flag.key, flag.value, keys);
    return keys;
  }
  void apply() {
    for (const Assignment& flag : flags_) assigner_.assign(flag.key, flag.value, flag.place);
  }

  void read() {
    while (at_ < arguments_.size()) {
      const std::string& argument = arguments_[at_++];
      if (argument == "--") {
        input_.positionals.insert(input_.positionals.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(at_),
                                  arguments_.end());
        return;
      }
      if (is_flag(argument)) {
        read_flag(argument);
      } else {
        input_.positionals.push_back(argument);
      }
    }
  }

 private:
  static bool is_flag(std::string_view argument) { return argument.starts_with("--"); }
  [[nodiscard]] bool value_follows() const { return at_ < arguments_.size() && !is_flag(arguments_[at_]); }

  void read_flag(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    const std::string key = with_underscores(std::string_view(argument).substr(2, equals - 2));
    const Place place{.key = key};
    if (equals != std::string::npos) return add(key, value_of(key, argument.substr(equals + 1)), place);

    const Option* option = table_.find(key);
    if (option != nullptr && takes_no_value(*option) &&
        !(value_follows() && is_value_of_switch(*option, arguments_[at_]))) {
      return add(key, scalar("true"), place);
    }
    if (option != nullptr && is_list(*option)) return read_list(key, place);
    if (option == nullptr && !table_.is_map(key) && read_without_option(key, place)) return;
    if (!value_follows()) throw Error(place.text(), "a value is missing", option ? expectation_of(*option) : "");
    const std::string& text = arguments_[at_++];
    add(key, value_of(key, text), place);
  }

  void read_list(const std::string& key, const Place& place) {
    const std::size_t first = at_;
    while (value_follows()) ++at_;
    const auto values = arguments_.subspan(first, at_ - first);
    if (values.empty()) throw Error(place.text(), "a value is missing", expectation_of(*table_.find(key)));
    if (values.size() == 1) return add(key, value_of(key, values[0]), place);
    YamlValue list{.kind = YamlValue::Kind::list};
    for (const std::string& value : values) list.items.push_back(scalar(value));
    add(key, list, place);
  }

  // --no_key for a boolean, and keys that only other tools have; false where the flag is neither.
  bool read_without_option(const std::string& key, const Place& place) {
    if (key.starts_with("no_") && assigner_.find_foreign(key) == nullptr) {
      const std::string positive = key.substr(3);
      const Option* option = table_.find(positive);
      if (option != nullptr ? takes_no_value(*option) : assigner_.find_foreign(positive) != nullptr) {
        add(positive, scalar("false"), place);
        return true;
      }
    }
    if (assigner_.find_foreign(key) == nullptr && key != "env") assigner_.fail_unknown(key, place);
    if (value_follows()) return false;
    add(key, scalar("true"), place);
    return true;
  }

  void add(const std::string& key, YamlValue value, const Place& place) {
    flags_.push_back({key, std::move(value), place});
  }

  static YamlValue scalar(std::string text) { return {.kind = YamlValue::Kind::scalar, .scalar = std::move(text)}; }

  // Lists and maps are written as in YAML, and so is null for an option that may be unset; all else is text.
  [[nodiscard]] YamlValue value_of(const std::string& key, const std::string& text) const {
    const Option* option = table_.find(key);
    const bool structured = option == nullptr || is_list(*option) || has_any_shape(*option);
    if (structured && (text.starts_with('[') || text.starts_with('{'))) return parse_flag(key, text);
    if (text == "null" && (option == nullptr || may_be_unset(*option))) return {};
    return scalar(text);
  }

  [[nodiscard]] static YamlValue parse_flag(const std::string& key, const std::string& text) {
    try {
      return parse_yaml(text, "");
    } catch (const Error&) {
      throw Error("--" + key, text_of("expected a list or a map as YAML or JSON write it, saw ", shown(text)));
    }
  }

  const OptionTable& table_;
  std::span<const std::string> arguments_;
  OptionInput& input_;
  Assigner assigner_;
  std::vector<Assignment> flags_;
  std::size_t at_ = 0;
};

void read_keys(const OptionTable& table, const YamlValue& document, std::string_view file, Assigner& assigner) {
  if (document.kind == YamlValue::Kind::null) return;
  if (document.kind != YamlValue::Kind::map) {
    throw Error(text_of(file, ":", document.line), text_of("expected lines of `key: value`, saw ", shown(document)));
  }
  std::map<std::string, std::string> seen;
  for (std::size_t i = 0; i < document.items.size(); ++i) {
    const std::string key = with_underscores(document.keys[i]);
    const Place place{std::string(file), document.items[i].line, key};
    const Option* option = table.find(key);
    const auto [other, fresh] = seen.emplace(option != nullptr ? option->name : key, key);
    if (!fresh)
      throw Error(place.text(), text_of("says again what ", other->second, " said above"), "keep one of them");
    assigner.assign(key, document.items[i], place);
  }
}

}  // namespace

void OptionTable::add(std::string_view name, OptionTarget target, std::string_view help, Range range) {
  Option option{.name = prefix_ + std::string(name),
                .help = std::string(help),
                .group = group_,
                .range = range,
                .target = target,
                .default_text = {}};
  HONE_ASSERT(find(option.name) == nullptr, "the option ", option.name, " is declared twice");
  const auto* enumeration = std::get_if<EnumTarget>(&option.target);
  std::string& text = option.default_text;
  text = enumeration != nullptr ? alternatives(enumeration->table->names)[enumeration->get(enumeration->value)]
                                : value_text(option);
  if (std::holds_alternative<double*>(option.target) && text.ends_with(".0")) text.resize(text.size() - 2);
  options_.push_back(std::move(option));
}

void OptionTable::alias(std::string_view other, std::string_view name) {
  HONE_ASSERT(find(name) != nullptr && find(other) == nullptr, other, " cannot stand for ", name);
  aliases_.emplace(other, name);
}

void OptionTable::secret(std::string_view name) {
  const auto at = std::ranges::find(options_, name, &Option::name);
  HONE_ASSERT(at != options_.end(), "there is no option ", name);
  at->secret = true;
  at->default_text.clear();
}

const Option* OptionTable::find(std::string_view name) const {
  const auto alias = aliases_.find(name);
  const std::string_view wanted = alias == aliases_.end() ? name : alias->second;
  const auto at = std::ranges::find(options_, wanted, &Option::name);
  return at == options_.end() ? nullptr : &*at;
}

bool OptionTable::is_map(std::string_view name) const {
  return std::ranges::any_of(options_, [&](const Option& option) {
    return option.name.size() > name.size() && option.name.starts_with(name) && option.name[name.size()] == '.';
  });
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    const std::size_t dot = option.name.find('.');
    if (dot != std::string::npos && (names.empty() || names.back() != option.name.substr(0, dot))) {
      names.push_back(option.name.substr(0, dot));
    }
    names.push_back(option.name);
  }
  for (const auto& [other, name] : aliases_) names.push_back(other);
  return names;
}

std::vector<std::string> notice_lines(std::span<const OptionNotice> notices) {
  std::vector<std::pair<std::string, std::vector<std::string>>> keys_by_note;
  for (const OptionNotice& notice : notices) {
    auto at = std::ranges::find(keys_by_note, notice.note, &std::pair<std::string, std::vector<std::string>>::first);
    if (at == keys_by_note.end()) at = keys_by_note.insert(at, {notice.note, {}});
    if (std::ranges::count(at->second, notice.key) == 0) at->second.push_back(notice.key);
  }
  std::vector<std::string> lines;
  for (auto& [note, keys] : keys_by_note) {
    const std::string last = keys.back();
    keys.pop_back();
    lines.push_back(keys.empty() ? text_of(last, " has no effect: ", note)
                                 : text_of(join(keys, ", "), " and ", last, " have no effect: ", note));
  }
  return lines;
}

std::string OptionInput::place_of(std::string_view name) const {
  const auto at = places.find(name);
  return at == places.end() ? std::string(name) : at->second;
}

void read_option_keys(const OptionTable& table, const YamlValue& document, std::string_view file,
                      std::span<const ForeignKey> foreign, OptionInput& input) {
  Assigner assigner(table, foreign, input);
  read_keys(table, document, file, assigner);
}

void read_option_flags(const OptionTable& table, std::span<const std::string> arguments,
                       std::span<const ForeignKey> foreign, OptionInput& input) {
  FlagReader reader(table, arguments, foreign, input);
  reader.read();
  reader.apply();
}

bool is_recipe(std::string_view argument) { return argument.ends_with(".yaml") || argument.ends_with(".yml"); }

namespace {

// Takes the recipe out of the positionals; nothing where there is none.
std::optional<std::string> take_recipe(std::vector<std::string>& positionals) {
  const auto at = std::ranges::find_if(positionals, is_recipe);
  if (at == positionals.end()) return std::nullopt;
  std::string recipe = std::move(*at);
  positionals.erase(at);
  const auto other = std::ranges::find_if(positionals, is_recipe);
  if (other != positionals.end()) {
    throw Error("command line", text_of("names two recipes, ", shown(recipe), " and ", shown(*other)), "give one");
  }
  return recipe;
}

}  // namespace

OptionInput read_options(const OptionTable& table, std::span<const std::string> arguments,
                         std::span<const ForeignKey> foreign, RecipeArgument recipe) {
  OptionInput input;
  std::vector<std::string> flags;
  std::optional<std::string> file;
  const auto name_file = [&](std::string_view name) {
    if (file) throw Error("--config", text_of("given twice, saw ", shown(*file), " and ", shown(name)));
    if (name.empty()) throw Error("--config", "a value is missing", "the path of a YAML file");
    file = name;
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      flags.insert(flags.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (argument == "--help" || argument == "-h") {
      input.help = true;
      return input;
    }
    if (argument == "--config") {
      const bool follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
      name_file(follows ? std::string_view(arguments[++i]) : std::string_view());
    } else if (argument.starts_with("--config=")) {
      name_file(std::string_view(argument).substr(9));
    } else {
      flags.push_back(argument);
    }
  }
  FlagReader reader(table, flags, foreign, input);
  reader.read();
  if (recipe == RecipeArgument::taken) {
    if (const std::optional<std::string> named = take_recipe(input.positionals)) name_file(*named);
  }
  if (file) {
    Assigner assigner(table, foreign, input);
    assigner.leave_out(reader.keys());
    read_keys(table, read_yaml(*file), *file, assigner);
  }
  reader.apply();
  return input;
}

}  // namespace hone
