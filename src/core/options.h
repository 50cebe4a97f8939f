// Options declared once. A struct of options names its members, with the text that explains them:
//
//   struct SampleOptions {
//     double temperature = 1.0;
//     template <class Visitor>
//     void fields(Visitor& v) {
//       v.group("Sampling");
//       v("temperature", temperature, "Divides the logits", at_least(0));
//     }
//   };
//
// From that come YAML keys, flags, help, the printed values and the table in the docs. A base's or a member's options
// are included by calling its fields(v); a member whose type has fields() of its own may also be named, and is then a
// map: `lr_scheduler_kwargs: {min_lr_rate: 0.1}`, --lr_scheduler_kwargs.min_lr_rate 0.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"
#include "core/yaml.h"

namespace hone {

// Where a number, or each number of a list, may lie.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_excluded = false;
  bool most_excluded = false;
};
[[nodiscard]] constexpr Range at_least(double least) { return {.least = least}; }
[[nodiscard]] constexpr Range above(double bound) { return {.least = bound, .least_excluded = true}; }
[[nodiscard]] constexpr Range within(double least, double most) { return {.least = least, .most = most}; }

// The names of an enumeration whose values count from 0, declared once for the whole program:
//
//   template <> inline constexpr EnumTable kEnumTable<Rollout>{.names = "own|server"};
//
// An enumeration with the name "no", "none" or "false" reads a YAML false as that, one with "true" a YAML true.
struct EnumTable {
  std::string_view names;         // "a|b|c", in the order of the values
  std::string_view aliases = {};  // "another spelling=name|..."
  std::string_view not_yet = {};  // names that other tools know and hone does not implement
};
template <class Enum>
inline constexpr EnumTable kEnumTable{};

// The parts of "a|b|c".
[[nodiscard]] std::vector<std::string_view> alternatives(std::string_view text);
// The names of an enumeration by value.
template <class Enum>
[[nodiscard]] std::vector<std::string_view> names_of() {
  return alternatives(kEnumTable<Enum>.names);
}
template <class Enum>
[[nodiscard]] std::string_view name_of(Enum value)
  requires(!kEnumTable<Enum>.names.empty())
{
  return names_of<Enum>().at(static_cast<std::size_t>(value));
}

struct EnumTarget {
  void* value;
  std::size_t (*get)(const void*);
  void (*set)(void*, std::size_t);
  const EnumTable* table;
};

// The member that holds an option's value; a YamlValue is a map or a list of any shape, read by whom it concerns.
using OptionTarget =
    std::variant<bool*, std::int64_t*, double*, std::string*, std::optional<bool>*, std::optional<std::int64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::int64_t>*, std::vector<double>*,
                 std::vector<std::string>*, YamlValue*, EnumTarget>;

struct Option {
  std::string name;  // with underscores; "map.key" for a key of a map
  std::string help;
  std::string group;
  Range range;
  OptionTarget target;
  std::string default_text;  // as help shows it; empty where there is no value
  bool secret = false;       // a password: never printed, neither as a value in effect nor in a message
  bool of_run = false;       // says where or how a run runs, not what it computes
};

class OptionTable;
template <class T>
concept OptionGroup = requires(T& options, OptionTable& table) { options.fields(table); };

// The options of one struct, which must outlive the table.
class OptionTable {
 public:
  template <class Options>
  explicit OptionTable(Options& options) {
    options.fields(*this);
  }

  // What fields() calls.
  void group(std::string_view title) { group_ = title; }
  template <class T>
  void operator()(std::string_view name, T& member, std::string_view help, Range range = {}) {
    if constexpr (OptionGroup<T>) {
      const std::string outer = std::exchange(prefix_, prefix_ + std::string(name) + ".");
      member.fields(*this);
      prefix_ = outer;
    } else if constexpr (std::is_enum_v<T>) {
      static_assert(!kEnumTable<T>.names.empty(), "an enumeration has no table of names");
      add(name,
          EnumTarget{&member, [](const void* value) { return static_cast<std::size_t>(*static_cast<const T*>(value)); },
                     [](void* value, std::size_t index) { *static_cast<T*>(value) = static_cast<T>(index); },
                     &kEnumTable<T>},
          help, range);
    } else {
      add(name, &member, help, range);
    }
  }
  // Another spelling of an option that is in the table.
  void alias(std::string_view other, std::string_view name);
  // Marks an option that is in the table as secret.
  void secret(std::string_view name);
  // Calls body(). The options that it declares say where or how a run runs, not what it computes: a model's card leaves
  // them out.
  template <class Body>
  void of_run(const Body& body) {
    const bool outer = std::exchange(of_run_, true);
    body();
    of_run_ = outer;
  }

  [[nodiscard]] std::span<const Option> options() const { return options_; }
  [[nodiscard]] const Option* find(std::string_view name) const;  // by name or alias; nullptr where there is none
  [[nodiscard]] bool is_map(std::string_view name) const;         // whether there are options "NAME.key"
  [[nodiscard]] std::vector<std::string> names() const;           // aliases and maps included

 private:
  void add(std::string_view name, OptionTarget target, std::string_view help, Range range);

  std::vector<Option> options_;
  std::map<std::string, std::string, std::less<>> aliases_;
  std::string group_;
  std::string prefix_;
  bool of_run_ = false;
};

// A key that the tools whose recipes hone reads know, and that is no option here.
struct ForeignKey {
  enum class Kind : std::uint8_t {
    no_effect,  // changes nothing in hone: accepted, said once
    not_yet,    // an error, unless the value asks for nothing
    never,      // an error, unless the value asks for nothing
  };
  std::string_view name;
  Kind kind;
  std::string_view note;           // why; or what is not there
  std::string_view harmless = {};  // values that ask for nothing beside null, false, "", none, no, [] and {}: "a|b"
};

// A key that was accepted without effect.
struct OptionNotice {
  std::string key;
  std::string note;  // why
  friend bool operator==(const OptionNotice&, const OptionNotice&) = default;
};
// "a and b have no effect: NOTE": a line a note, in the order in which they were first seen, no key twice.
[[nodiscard]] std::vector<std::string> notice_lines(std::span<const OptionNotice> notices);

// What was read beside the options themselves.
struct OptionInput {
  bool help = false;                  // --help was seen; nothing else was read
  std::vector<OptionNotice> notices;  // what to say once
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> environment;  // of `env:`
  std::map<std::string, std::string, std::less<>> places;        // option -> "FILE:LINE: KEY" or "--KEY"

  // Where an option's value came from, to begin an error with; its name where it is the default.
  [[nodiscard]] std::string place_of(std::string_view name) const;
  [[nodiscard]] bool was_set(std::string_view name) const { return places.contains(name); }
};

// Reads a document of keys. All throw Error with the place, the value seen and what is expected.
void read_option_keys(const OptionTable& table, const YamlValue& document, std::string_view file,
                      std::span<const ForeignKey> foreign, OptionInput& input);
// Reads flags: `--key value`, `--key=value`, hyphens or underscores; `--key` and `--no_key` for booleans; lists as
// `a,b`, `[a, b]` or several values up to the next flag; maps as `{key: value}`. What is no flag and belongs to none is
// a positional, and so is all after `--`.
void read_option_flags(const OptionTable& table, std::span<const std::string> arguments,
                       std::span<const ForeignKey> foreign, OptionInput& input);
// Whether a positional that ends in .yaml or .yml is the file of keys, as --config FILE is.
enum class RecipeArgument : std::uint8_t { refused, taken };
// A command line: the file that --config names (or, where it is `taken`, a positional), and the flags, which win: a
// value of the file whose key is also a flag is not judged.
[[nodiscard]] OptionInput read_options(const OptionTable& table, std::span<const std::string> arguments,
                                       std::span<const ForeignKey> foreign = {},
                                       RecipeArgument recipe = RecipeArgument::refused);
[[nodiscard]] bool is_recipe(std::string_view argument);  // by its ending

// The keys that a word of other tools' ("lr", "batch_size") may stand for, the likeliest first; empty where it is none.
[[nodiscard]] std::span<const std::string_view> keys_meant_by(std::string_view word);

// The options in groups, aligned, with defaults.
[[nodiscard]] std::string option_help(const OptionTable& table);
// A Markdown table of the same.
[[nodiscard]] std::string option_markdown(const OptionTable& table);
// The values in effect. read_option_keys takes both back.
[[nodiscard]] Json option_json(const OptionTable& table);
[[nodiscard]] std::string option_yaml(const OptionTable& table);

}  // namespace hone
