// The interface of an additional compiler pass, for example one that shards weights over devices or narrows the type of
// some weights. Such passes run next to the built-in ones (compile/compiler.cpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "program/program.h"

namespace hone {

struct CompileOptions;

// The point in the compiler's order (compile/compiler.cpp) at which a pass runs.
enum class PassStage : std::uint8_t {
  kTraced,    // before all built-in passes: every value has the type that it was traced with
  kTyped,     // element types are final, nothing is fused and there are no gradients yet
  kFinished,  // after all built-in passes
};

// The kind of program that is compiled.
enum class ProgramKind : std::uint8_t { kInference, kTraining, kUpdate };

class CompilePass {
 public:
  virtual ~CompilePass() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual PassStage place() const = 0;
  // Returns a program with the same outputs.
  [[nodiscard]] virtual Program run(const Program& program, ProgramKind kind, const CompileOptions& options) const = 0;
};

}  // namespace hone
