// Modules as PEFT's target_modules and exclude_modules name them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/name_pattern.h"

namespace hone {

// "model.layers.0.self_attn.q_proj.weight" -> the name without ".weight"; other names as they are.
[[nodiscard]] std::string module_of(std::string_view part);
// Whether a module is the one that `wanted` names: itself, or its last names.
[[nodiscard]] bool is_module(std::string_view module, std::string_view wanted);
// "model.layers.0.self_attn.q_proj" -> "q_proj".
[[nodiscard]] std::string last_name(std::string_view module);

// Modules by name, or those whose whole names a regular expression fits.
class ModuleChoice {
 public:
  ModuleChoice() = default;  // none
  explicit ModuleChoice(std::vector<std::string> names) : names_(std::move(names)) {}
  explicit ModuleChoice(NamePattern pattern) : pattern_(std::move(pattern)) {}

  [[nodiscard]] bool fits(std::string_view module) const;
  // Whether it is named with its whole name.
  [[nodiscard]] bool names(std::string_view module) const;

 private:
  std::vector<std::string> names_;
  std::optional<NamePattern> pattern_;
};

}  // namespace hone
