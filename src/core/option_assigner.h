// Assigns a value read from a recipe or from the command line to the option that its key names.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/options.h"
#include "core/yaml.h"

namespace hone {

// Source location of a value, for error messages: "FILE:LINE: KEY" or "--KEY".
struct OptionPlace {
  std::string file;  // empty for the command line
  int line = 0;
  std::string key;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] OptionPlace below(const std::string& name, int at) const { return {file, at, key + "." + name}; }
};

using OptionKeySet = std::set<std::string, std::less<>>;

// Sets options of a table. The table, the foreign keys and the input must outlive the assigner.
class OptionAssigner {
 public:
  OptionAssigner(const OptionTable& table, std::span<const ForeignKey> foreign, OptionInput& input)
      : table_(table), foreign_(foreign), input_(input) {}

  // Makes assign() skip these keys without checking their values, because a source of higher priority sets them.
  void skip_keys(OptionKeySet keys) { skipped_keys_ = std::move(keys); }
  // Sets the option that `key` names. Throws Error if the key is unknown or the value does not fit the option.
  void assign(const std::string& key, const YamlValue& value, const OptionPlace& place);
  // Adds the keys that assign() would set to `keys`. A map counts as the keys in it, so that options of the same map
  // which it does not name keep the values of other sources.
  void collect(const std::string& key, const YamlValue& value, OptionKeySet& keys) const;
  [[nodiscard]] const ForeignKey* find_foreign(std::string_view key) const;  // nullptr if there is none
  [[noreturn]] void fail_unknown(const std::string& key, const OptionPlace& place) const;

 private:
  [[nodiscard]] std::string canonical(const std::string& key) const;
  void read_environment(const YamlValue& value, const OptionPlace& place);
  void read_map(const std::string& key, const YamlValue& value, const OptionPlace& place);
  void read_foreign(const ForeignKey& key, const YamlValue& value, const OptionPlace& place);

  const OptionTable& table_;
  std::span<const ForeignKey> foreign_;
  OptionInput& input_;
  OptionKeySet skipped_keys_;
};

}  // namespace hone
