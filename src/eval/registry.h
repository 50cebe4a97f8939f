// Registry of the tasks of `hone eval`. Each task has a folder and registers itself.
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

  // Adds a task. `aliases` are other names of the task.
  void add(std::string name, Maker make, std::vector<std::string> aliases = {});

  [[nodiscard]] std::vector<std::string> names() const;  // sorted, without aliases
  // Builds a task by name or alias. Throws Error, suggesting the most similar name, if there is no such task.
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

void register_all_eval(TaskRegistry& registry);  // generated

}  // namespace hone
