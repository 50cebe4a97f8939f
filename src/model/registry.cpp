#include "model/registry.h"

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "ops/registry.h"

namespace hone {

void FamilyRegistry::add(const Family& family) {
  const bool added = families_.emplace(family.model_type(), &family).second;
  HONE_ASSERT(added, "family ", family.model_type(), " is registered twice");
}

std::vector<std::string> FamilyRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(families_.size());
  for (const auto& [name, family] : families_) names.push_back(name);
  return names;
}

std::unique_ptr<Model> FamilyRegistry::create(const Json& config) const {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    throw Error("config.json", "model_type is missing", text_of("one of ", join(names(), ", ")));
  }
  const auto found = families_.find(type->get<std::string>());
  if (found == families_.end()) {
    throw Error("config.json", text_of("model_type '", type->get<std::string>(), "' is not known"),
                text_of("hone knows ", join(names(), ", ")));
  }
  std::unique_ptr<Model> model = found->second->create(config);
  check_specs(model->weights());
  return model;
}

const FamilyRegistry& family_registry() {
  static const FamilyRegistry registry = [] {
    register_operations();
    FamilyRegistry filled;
    register_all_model(filled);
    return filled;
  }();
  return registry;
}

}  // namespace hone
