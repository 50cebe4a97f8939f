// All model families.
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
  void add(const Family& family);                        // lives as long as the process
  [[nodiscard]] std::vector<std::string> names() const;  // sorted
  // By model_type of the configuration; throws Error naming the families there are.
  [[nodiscard]] std::unique_ptr<Model> create(const Json& config) const;

 private:
  std::map<std::string, const Family*, std::less<>> families_;
};

using RegistryOf_model = FamilyRegistry;
void register_all_model(FamilyRegistry& registry);  // generated

// The families of hone; fills the operations' registries too.
[[nodiscard]] const FamilyRegistry& family_registry();

}  // namespace hone
