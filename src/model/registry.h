// The registry of model families.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace hone {

class FamilyRegistry {
 public:
  void add(const Family& family);                        // must outlive the registry
  [[nodiscard]] std::vector<std::string> names() const;  // model types, sorted
  // Creates the model that model_type of the configuration names. Throws Error listing the known families if it is
  // missing or unknown, or if Family::create() throws.
  [[nodiscard]] std::unique_ptr<Model> create(const Json& config) const;

 private:
  std::map<std::string, const Family*, std::less<>> families_;
};

using RegistryOf_model = FamilyRegistry;
void register_all_model(FamilyRegistry& registry);  // generated

// The registered families of this build. The first call also registers all operations.
[[nodiscard]] const FamilyRegistry& family_registry();

}  // namespace hone
