// The registry of additional compiler passes: one for each folder of src/compile.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "compile/pass.h"

namespace hone {

class PassRegistry {
 public:
  // Adds a pass, which must outlive the registry. Throws Defect if its name is taken.
  void add(const CompilePass& pass);
  // Runs the passes registered for `place`, in the order of their names.
  [[nodiscard]] Program run(Program program, PassStage place, ProgramKind kind, const CompileOptions& options) const;

 private:
  std::map<std::string, const CompilePass*, std::less<>> passes_;
};

using RegistryOf_compile = PassRegistry;
void register_all_compile(PassRegistry& registry);  // generated

// The registered passes of this build.
[[nodiscard]] const PassRegistry& pass_registry();

}  // namespace hone
