// The passes that have a folder of their own in this room.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "compile/pass.h"

namespace hone {

class PassRegistry {
 public:
  void add(const CompilePass& pass);  // lives as long as the registry
  // Runs those that stand at `place`, by their names.
  [[nodiscard]] Program run(Program program, PassPlace place, ProgramKind kind, const CompileOptions& options) const;

 private:
  std::map<std::string, const CompilePass*, std::less<>> passes_;
};

using RegistryOf_compile = PassRegistry;
void register_all_compile(PassRegistry& registry);  // generated

// The passes of hone.
[[nodiscard]] const PassRegistry& pass_registry();

}  // namespace hone
