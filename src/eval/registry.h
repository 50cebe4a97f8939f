// The tasks that `eval` may name: one folder each, which registers itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"

namespace hone {

class TaskRegistry {
 public:
  using Maker = std::function<EvalTask(const TaskOptions&)>;

  // `aliases`: other names of the same task.
  void add(std::string name, Maker make, std::vector<std::string> aliases = {});

  [[nodiscard]] std::vector<std::string> names() const;  // sorted, without aliases
  // By name or alias. Throws Error with the nearest known name.
  [[nodiscard]] EvalTask make(std::string_view name, const TaskOptions& options) const;

 private:
  struct Entry {
    std::string name;
    Maker make;
    std::vector<std::string> aliases;
  };
  std::vector<Entry> entries_;  // sorted by name
};

using RegistryOf_eval = TaskRegistry;

void register_all_eval(TaskRegistry& registry);

}  // namespace hone
