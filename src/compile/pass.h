// A pass of its own beside those that every program takes: a layout over devices, a narrower type of some weights.
#pragma once

#include <cstdint>
#include <string_view>

#include "program/program.h"

namespace hone {

struct CompileOptions;

// Where in the order of compile/compiler.cpp a pass stands.
enum class PassPlace : std::uint8_t {
  traced,    // before all others: every value has the type that it was traced with
  typed,     // element types are final, nothing is fused and there are no gradients yet
  finished,  // after all others
};

// What is compiled.
enum class ProgramKind : std::uint8_t { inference, training, update };

class CompilePass {
 public:
  virtual ~CompilePass() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual PassPlace place() const = 0;
  // A program that gives the same outputs.
  [[nodiscard]] virtual Program run(const Program& program, ProgramKind kind, const CompileOptions& options) const = 0;
};

}  // namespace hone
