// From a key and its value, wherever they were read, to the option that it names.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/options.h"
#include "core/yaml.h"

namespace hone {

// Where a value was given: "FILE:LINE: KEY" or "--KEY".
struct OptionPlace {
  std::string file;  // empty: the command line
  int line = 0;
  std::string key;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] OptionPlace below(const std::string& name, int at) const { return {file, at, key + "." + name}; }
};

using OptionKeySet = std::set<std::string, std::less<>>;

// Gives values to the options of a table. All that it is given must outlive it.
class OptionAssigner {
 public:
  OptionAssigner(const OptionTable& table, std::span<const ForeignKey> foreign, OptionInput& input)
      : table_(table), foreign_(foreign), input_(input) {}

  // Leaves keys out that a stronger place gives: their values are not looked at.
  void leave_out(OptionKeySet keys) { left_out_ = std::move(keys); }
  // Throws Error where the key is unknown or the value does not fit it.
  void assign(const std::string& key, const YamlValue& value, const OptionPlace& place);
  // The keys that an assignment gives: a map's own, so that those it does not name stay as they are.
  void collect(const std::string& key, const YamlValue& value, OptionKeySet& keys) const;
  [[nodiscard]] const ForeignKey* find_foreign(std::string_view key) const;  // nullptr where there is none
  [[noreturn]] void fail_unknown(const std::string& key, const OptionPlace& place) const;

 private:
  [[nodiscard]] std::string canonical(const std::string& key) const;
  void read_environment(const YamlValue& value, const OptionPlace& place);
  void read_map(const std::string& key, const YamlValue& value, const OptionPlace& place);
  void read_foreign(const ForeignKey& key, const YamlValue& value, const OptionPlace& place);

  const OptionTable& table_;
  std::span<const ForeignKey> foreign_;
  OptionInput& input_;
  OptionKeySet left_out_;
};

}  // namespace hone
