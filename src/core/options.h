// Declares the options of a command once, as members of a struct, and derives from that declaration the YAML keys, the
// command-line flags, the help text, the printed values and the tables in the documentation:
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
// fields() includes the options of a base class or member by calling its fields(v). A member whose type has fields()
// may instead be declared under a name; it is then a map:
// `lr_scheduler_kwargs: {min_lr_rate: 0.1}`, --lr_scheduler_kwargs.min_lr_rate 0.1.
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

// Interval of valid values of a number, or of each number in a list.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_excluded = false;
  bool most_excluded = false;
};
[[nodiscard]] constexpr Range at_least(double least) { return {.least = least}; }
[[nodiscard]] constexpr Range above(double bound) { return {.least = bound, .least_excluded = true}; }
[[nodiscard]] constexpr Range within(double least, double most) { return {.least = least, .most = most}; }

// Names of an enumeration whose values count from 0, declared once for the whole program:
//
//   template <> inline constexpr EnumTable kEnumTable<Rollout>{.names = "own|server"};
//
// A YAML boolean is accepted if the enumeration has a name or alias for it: "false", "no" or "none" for false, "true"
// or "yes" for true.
struct EnumTable {
  std::string_view names;         // "a|b|c", in the order of the values
  std::string_view aliases = {};  // "other spelling=name|..."
  std::string_view not_yet = {};  // "a|b": names that other tools accept and hone does not implement yet
};
template <class Enum>
inline constexpr EnumTable kEnumTable{};

// Splits "a|b|c" at the bars; an empty text has no parts.
[[nodiscard]] std::vector<std::string_view> alternatives(std::string_view text);
// Names of an enumeration, indexed by value.
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

// Type-erased pointer to a member that is an enumeration; get and set convert its value to an index of the names.
struct EnumTarget {
  void* value;
  std::size_t (*get)(const void*);
  void (*set)(void*, std::size_t);
  const EnumTable* table;
};

// Pointer to the member that holds an option's value. A YamlValue holds a map or list of any shape, which the code that
// uses the option interprets.
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
  std::string default_text;  // as help shows it; empty if there is no default
  bool secret = false;       // a password or token: neither its value in effect nor a message prints it
  bool run_only = false;     // affects where or how a run executes, not what it computes
};

class OptionTable;
template <class T>
concept OptionGroup = requires(T& options, OptionTable& table) { options.fields(table); };

// Table of all options of one struct, which must outlive the table. It is also the visitor that fields() receives.
class OptionTable {
 public:
  template <class Options>
  explicit OptionTable(Options& options) {
    options.fields(*this);
  }

  // Declarations, called by fields(): a group title for the help text, then the options of the group.
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
  // Adds another spelling of an option that is already declared.
  void alias(std::string_view other, std::string_view name);
  // Marks an option that is already declared as secret.
  void secret(std::string_view name);
  // Calls body() and marks the options that it declares as run_only: they affect where or how a run executes, not what
  // it computes, and model cards omit them.
  template <class Body>
  void run_only(const Body& body) {
    const bool outer = std::exchange(of_run_, true);
    body();
    of_run_ = outer;
  }

  [[nodiscard]] std::span<const Option> options() const { return options_; }
  [[nodiscard]] const Option* find(std::string_view name) const;  // by name or alias; nullptr if there is none
  [[nodiscard]] bool is_map(std::string_view name) const;         // true if there are options "NAME.key"
  [[nodiscard]] std::vector<std::string> names() const;           // including aliases and maps

 private:
  void add(std::string_view name, OptionTarget target, std::string_view help, Range range);

  std::vector<Option> options_;
  std::map<std::string, std::string, std::less<>> aliases_;
  std::string group_;
  std::string prefix_;
  bool of_run_ = false;
};

// Key of another tool (TRL, transformers, ...) that a recipe may contain and that is not an option of hone. A value
// that disables the feature is always accepted silently.
struct ForeignKey {
  enum class Kind : std::uint8_t {
    kNoEffect,  // accepted with a notice: hone behaves the same for every value
    kNotYet,    // an error: hone does not implement the feature yet
    kNever,     // an error: hone will not implement the feature
  };
  std::string_view name;
  Kind kind;
  std::string_view note;           // the reason for no_effect and never; the subject of "not implemented yet"
  std::string_view harmless = {};  // "a|b": disabling values in addition to null, false, "", none, no, [] and {}
};

// Key that was accepted without effect.
struct OptionNotice {
  std::string key;
  std::string note;  // the reason
  friend bool operator==(const OptionNotice&, const OptionNotice&) = default;
};
// Formats "a and b have no effect: NOTE": one line for each distinct note, in order of first occurrence, and each key
// once.
[[nodiscard]] std::vector<std::string> notice_lines(std::span<const OptionNotice> notices);

// Everything that was read in addition to the option values.
struct OptionInput {
  bool help = false;                  // --help was given; nothing else was read
  std::vector<OptionNotice> notices;  // keys without effect, to report once
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> environment;  // variables set by `env:`
  std::map<std::string, std::string, std::less<>> places;        // option -> "FILE:LINE: KEY" or "--KEY"

  // Returns the source of an option's value to prefix an error message with; the option's name if it has its default.
  [[nodiscard]] std::string place_of(std::string_view name) const;
  [[nodiscard]] bool was_set(std::string_view name) const { return places.contains(name); }
};

// The read functions throw Error with the source of the value, what is expected and the value seen.
//
// Sets options from a YAML document, a map from keys to values. `file` names it in messages.
void read_option_keys(const OptionTable& table, const YamlValue& document, std::string_view file,
                      std::span<const ForeignKey> foreign, OptionInput& input);
// Sets options from command-line flags. Syntax: `--key value` or `--key=value`, with hyphens or underscores; `--key`
// and `--no_key` for booleans; lists as `a,b`, `[a, b]` or several values up to the next flag; maps as `{key: value}`.
// Other arguments, and all arguments after `--`, are positionals.
void read_option_flags(const OptionTable& table, std::span<const std::string> arguments,
                       std::span<const ForeignKey> foreign, OptionInput& input);
// Selects whether a positional that ends in .yaml or .yml is the recipe, as with --config FILE.
enum class RecipeArgument : std::uint8_t { kRefused, kTaken };
// Reads a whole command line: the recipe that --config (or, if `taken`, a positional) names, then the flags. Flags take
// precedence: the recipe's value of a key that is also given as a flag is ignored and not checked.
[[nodiscard]] OptionInput read_options(const OptionTable& table, std::span<const std::string> arguments,
                                       std::span<const ForeignKey> foreign = {},
                                       RecipeArgument recipe = RecipeArgument::kRefused);
[[nodiscard]] bool is_recipe(std::string_view argument);  // true if the name ends in .yaml or .yml

// Keys of hone that a common key of other tools ("lr", "batch_size") may mean, most likely first; empty for an unknown
// word. Used for suggestions in error messages only.
[[nodiscard]] std::span<const std::string_view> suggested_keys(std::string_view word);

// Formats the help text: the options by group, aligned, with their defaults.
[[nodiscard]] std::string option_help(const OptionTable& table);
// Formats the same as Markdown tables.
[[nodiscard]] std::string option_markdown(const OptionTable& table);
// Print the values in effect; read_option_keys reads both formats.
[[nodiscard]] Json option_json(const OptionTable& table);
[[nodiscard]] std::string option_yaml(const OptionTable& table);

}  // namespace hone
