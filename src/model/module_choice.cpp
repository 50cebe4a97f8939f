#include "model/module_choice.h"

#include <algorithm>

namespace hone {
namespace {

constexpr std::string_view kWeight = ".weight";

}  // namespace

std::string module_of(std::string_view part) {
  return std::string(part.ends_with(kWeight) ? part.substr(0, part.size() - kWeight.size()) : part);
}

bool is_module(std::string_view module, std::string_view wanted) {
  if (module == wanted) return true;
  return module.size() > wanted.size() && module.ends_with(wanted) && module[module.size() - wanted.size() - 1] == '.';
}

std::string last_name(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return std::string(dot == std::string_view::npos ? module : module.substr(dot + 1));
}

bool ModuleSet::fits(std::string_view module) const {
  if (pattern_) return pattern_->fits(module);
  return std::ranges::any_of(names_, [&](const std::string& name) { return is_module(module, name); });
}

bool ModuleSet::names(std::string_view module) const { return std::ranges::find(names_, module) != names_.end(); }

}  // namespace hone
