#include "workspace/sized_programs.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace hone {
namespace {

std::string prefix_of(std::string_view name) { return text_of(name, " of "); }

}  // namespace

void add_sized(Workspace& workspace, std::string_view name, std::span<const std::int64_t> capacities,
               const std::function<Program(std::int64_t tokens)>& trace, const ProgramUse& use) {
  HONE_ASSERT(!capacities.empty() && std::ranges::is_sorted(capacities), capacities.size(), " capacities");
  workspace.add(std::string(name), trace(capacities.back()), use);
  for (const std::int64_t tokens : capacities.first(capacities.size() - 1)) {
    workspace.add(text_of(prefix_of(name), tokens, " tokens"), trace(tokens), use);
  }
}

SizedExecutables::SizedExecutables(const Workspace& workspace, std::string_view name) {
  for (const std::string& each : workspace.program_names()) {
    if (each != name && !each.starts_with(prefix_of(name))) continue;
    Executable& executable = workspace.executable(each);
    programs_.push_back({capacity_of(executable), &executable});
  }
  HONE_ASSERT(!programs_.empty(), "there is no program ", name);
  std::ranges::sort(programs_, {}, &Sized::tokens);
}

Executable& SizedExecutables::holding(std::int64_t tokens) const {
  const auto found = std::ranges::lower_bound(programs_, tokens, {}, &Sized::tokens);
  HONE_ASSERT(found != programs_.end(), tokens, " tokens, largest capacity ", programs_.back().tokens);
  return *found->executable;
}

std::vector<Executable*> SizedExecutables::all() const {
  std::vector<Executable*> executables;
  executables.reserve(programs_.size());
  for (const Sized& each : programs_) executables.push_back(each.executable);
  return executables;
}

std::int64_t SizedExecutables::capacity_of(const Executable& executable) {
  const CountSpec* spec = executable.program().find_count(Count::tokens);
  HONE_ASSERT(spec != nullptr, "the program has no count of tokens");
  return spec->capacity;
}

}  // namespace hone
