#include "compile/registry.h"

#include "core/error.h"

namespace hone {

void PassRegistry::add(const CompilePass& pass) {
  const bool added = passes_.emplace(pass.name(), &pass).second;
  HONE_ASSERT(added, "pass ", pass.name(), " is registered twice");
}

Program PassRegistry::run(Program program, PassStage place, ProgramKind kind, const CompileOptions& options) const {
  for (const auto& [name, pass] : passes_) {
    if (pass->place() == place) program = pass->run(program, kind, options);
  }
  return program;
}

const PassRegistry& pass_registry() {
  static const PassRegistry registry = [] {
    PassRegistry all;
    register_all_compile(all);
    return all;
  }();
  return registry;
}

}  // namespace hone
