// One program in several capacities, so that a GPU, which multiplies all rows of a capacity, multiplies little padding.
// The capacities share stores and arena. Which one runs changes memory traffic and time, and no row of a result.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "workspace/workspace.h"

namespace hone {

// Adds the programs that `trace` returns for these capacities of Count::tokens, ascending. The largest has the name
// `name`, the others "NAME of N tokens".
void add_sized(Workspace& workspace, std::string_view name, std::span<const std::int64_t> capacities,
               const std::function<Program(std::int64_t tokens)>& trace, const ProgramUse& use);

// The executables of one program in ascending order of their capacity of Count::tokens.
class SizedExecutables {
 public:
  // A program that exists in one capacity.
  explicit(false) SizedExecutables(Executable& only) : programs_{{capacity_of(only), &only}} {}
  // The programs that add_sized() has added under `name` to a workspace that is allocated.
  SizedExecutables(const Workspace& workspace, std::string_view name);

  // Returns the smallest executable that holds this number of tokens. Throws Defect if there is none.
  [[nodiscard]] Executable& holding(std::int64_t tokens) const;
  [[nodiscard]] Executable& largest() const { return *programs_.back().executable; }
  // Returns the executables, smallest capacity first.
  [[nodiscard]] std::vector<Executable*> all() const;
  // Returns the capacity of an executable, the rows that a GPU multiplies in a run.
  [[nodiscard]] static std::int64_t capacity_of(const Executable& executable);

 private:
  struct Sized {
    std::int64_t tokens = 0;
    Executable* executable = nullptr;
  };
  std::vector<Sized> programs_;
};

}  // namespace hone
