// Selects modules by name or pattern, as PEFT's target_modules and exclude_modules do.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/name_pattern.h"

namespace hone {

// Name of the module of a weight: removes a trailing ".weight"; other names are returned unchanged.
[[nodiscard]] std::string module_of(std::string_view part);
// Returns true if `wanted` is the full name of the module or a suffix of it that starts after a dot.
[[nodiscard]] bool is_module(std::string_view module, std::string_view wanted);
// Last component of a name: "model.layers.0.self_attn.q_proj" -> "q_proj".
[[nodiscard]] std::string last_name(std::string_view module);

// A set of modules, given by a list of names or by a regular expression that matches full names.
class ModuleSet {
 public:
  ModuleSet() = default;  // no modules
  explicit ModuleSet(std::vector<std::string> names) : names_(std::move(names)) {}
  explicit ModuleSet(NamePattern pattern) : pattern_(std::move(pattern)) {}

  // Returns true if the module is in the set.
  [[nodiscard]] bool fits(std::string_view module) const;
  // Returns true if the list contains the full name of the module.
  [[nodiscard]] bool names(std::string_view module) const;

 private:
  std::vector<std::string> names_;
  std::optional<NamePattern> pattern_;
};

}  // namespace hone
