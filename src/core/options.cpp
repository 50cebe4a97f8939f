#include "core/options.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/option_assigner.h"
#include "core/option_value.h"
#include "core/strings.h"

namespace hone {
namespace {

std::string with_underscores(std::string_view key) {
  std::string name(key);
  std::ranges::replace(name, '-', '_');
  return name;
}

// Key and value from one source, before they are checked.
struct Assignment {
  std::string key;
  YamlValue value;
  OptionPlace place;
};

// Parses the arguments of a command line. read() only splits them; apply() checks the values and sets the options.
class FlagReader {
 public:
  FlagReader(const OptionTable& table, std::span<const std::string> arguments, std::span<const ForeignKey> foreign,
             OptionInput& input)
      : table_(table), arguments_(arguments), input_(input), assigner_(table, foreign, input) {}

  // Keys of all options that the flags set.
  [[nodiscard]] OptionKeySet keys() const {
    OptionKeySet keys;
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
    const OptionPlace place{.key = key};
    if (equals != std::string::npos) return add(key, value_of(key, argument.substr(equals + 1)), place);

    const Option* option = table_.find(key);
    if (option != nullptr && takes_no_value(*option) &&
        !(value_follows() && is_switch_value(*option, arguments_[at_]))) {
      return add(key, scalar("true"), place);
    }
    if (option != nullptr && is_list(*option)) return read_list(key, place);
    if (option == nullptr && !table_.is_map(key) && read_without_option(key, place)) return;
    if (!value_follows()) throw Error(place.text(), "a value is missing", option ? expectation_of(*option) : "");
    const std::string& text = arguments_[at_++];
    add(key, value_of(key, text), place);
  }

  void read_list(const std::string& key, const OptionPlace& place) {
    const std::size_t first = at_;
    while (value_follows()) ++at_;
    const auto values = arguments_.subspan(first, at_ - first);
    if (values.empty()) throw Error(place.text(), "a value is missing", expectation_of(*table_.find(key)));
    if (values.size() == 1) return add(key, value_of(key, values[0]), place);
    YamlValue list{.kind = YamlValue::Kind::kList};
    for (const std::string& value : values) list.items.push_back(scalar(value));
    add(key, list, place);
  }

  // Handles flags that name no option: --no_key for a boolean, and foreign keys without a value. Returns false if a
  // value follows. Throws Error for an unknown key.
  bool read_without_option(const std::string& key, const OptionPlace& place) {
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

  void add(const std::string& key, YamlValue value, const OptionPlace& place) {
    flags_.push_back({key, std::move(value), place});
  }

  static YamlValue scalar(std::string text) { return {.kind = YamlValue::Kind::kScalar, .scalar = std::move(text)}; }

  // Parses the text of a flag: lists and maps as YAML, "null" for an option that may be unset; other text is a scalar.
  [[nodiscard]] YamlValue value_of(const std::string& key, const std::string& text) const {
    const Option* option = table_.find(key);
    const bool structured = option == nullptr || is_list(*option) || is_untyped(*option);
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
  OptionAssigner assigner_;
  std::vector<Assignment> flags_;
  std::size_t at_ = 0;
};

void read_keys(const OptionTable& table, const YamlValue& document, std::string_view file, OptionAssigner& assigner) {
  if (document.kind == YamlValue::Kind::kNull) return;
  if (document.kind != YamlValue::Kind::kMap) {
    throw Error(text_of(file, ":", document.line), text_of("expected lines of `key: value`, saw ", shown(document)));
  }
  std::map<std::string, std::string> seen;
  for (std::size_t i = 0; i < document.items.size(); ++i) {
    const std::string key = with_underscores(document.keys[i]);
    const OptionPlace place{std::string(file), document.items[i].line, key};
    const Option* option = table.find(key);
    const auto [other, fresh] = seen.emplace(option != nullptr ? option->name : key, key);
    if (!fresh)
      throw Error(place.text(), text_of("says again what ", other->second, " said above"), "keep one of them");
    assigner.assign(key, document.items[i], place);
  }
}

}  // namespace

void read_option_keys(const OptionTable& table, const YamlValue& document, std::string_view file,
                      std::span<const ForeignKey> foreign, OptionInput& input) {
  OptionAssigner assigner(table, foreign, input);
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

// Removes the recipe from the positionals and returns it; nullopt if there is none.
std::optional<std::string> take_recipe(std::vector<std::string>& positionals) {
  const auto at = std::ranges::find_if(positionals, is_recipe);
  if (at == positionals.end()) return std::nullopt;
  std::string recipe = std::move(*at);
  positionals.erase(at);
  const auto other = std::ranges::find_if(positionals, is_recipe);
  if (other != positionals.end()) {
    throw Error("command line", text_of("expected one recipe, saw ", shown(recipe), " and ", shown(*other)),
                "give one");
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
  // Separate --help and --config from the other arguments.
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
  // Split the flags before the recipe is read: its values of keys that are also flags must be skipped.
  FlagReader reader(table, flags, foreign, input);
  reader.read();
  if (recipe == RecipeArgument::kTaken) {
    if (const std::optional<std::string> named = take_recipe(input.positionals)) name_file(*named);
  }
  if (file) {
    OptionAssigner assigner(table, foreign, input);
    assigner.skip_keys(reader.keys());
    read_keys(table, read_yaml(*file), *file, assigner);
  }
  reader.apply();
  return input;
}

}  // namespace hone
