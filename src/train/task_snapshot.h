// The state of a training task in memory, from which it can continue: for a step that fails, and for checkpoints.
#pragma once

#include <vector>

#include "core/json_value.h"
#include "train/training_task.h"

namespace hone {

struct TaskSnapshot {
  explicit TaskSnapshot(const TrainingTask& task) : state(task.state()), tensors(task.state_tensors()) {}
  void restore(TrainingTask& task) const { task.restore(state, tensors); }

  Json state;
  std::vector<TaskTensor> tensors;
};

}  // namespace hone
