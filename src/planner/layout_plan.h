// The plan of one layout of a run: its memory from the programs of its ranks, as the run will have them, and the time
// of its step by the cost model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "planner/layout.h"
#include "planner/step_time.h"
#include "train/language_programs.h"

namespace hone {

// A run over several processes whose layout is to be planned.
struct LayoutProblem {
  TrainingOptions options;  // with num_processes, and the sequences of a step as possible_layouts() counts them
  DType dtype = DType::kF32;
  SftLoss loss = SftLoss::kNll;
  BatchLimits sequence;  // of each sequence
  std::int64_t layers = 0;
  std::int64_t first_layers = 0;  // those before the layers that repeat to the end
  // Returns the whole model with this number of layers.
  std::function<std::unique_ptr<Model>(std::int64_t layers)> model;
  // Throws Error if the keys of the command do not fit each other.
  std::function<void(const TrainingOptions&)> check;
  bool recomputation_set = false;          // gradient_checkpointing is the user's and stays
  std::optional<std::int64_t> batch_size;  // the only per_device_train_batch_size, that of a resumed run
  std::int64_t unit = 1;                   // processes of which layouts are repeated over the job
  DeviceModel device;
  std::size_t available = 0;  // bytes of a device
};

struct LayoutPlan {
  Layout layout;
  StepTime time;
  std::size_t bytes = 0;  // of the rank that takes the most
};

// Returns the number of layers before those that repeat to the end, such as the dense ones of a mixture.
[[nodiscard]] std::int64_t first_layers(const Model& model);

// Plans a layout of the run. Throws Error if the model or an option does not allow it.
[[nodiscard]] LayoutPlan plan_layout(const LayoutProblem& problem, const Layout& layout);

// Estimates plans from models with few layers, in a small part of the time: time and memory as they grow with a layer
// more. Pipelines are derived from the whole model, which is estimated once for all numbers of chunks.
class LayoutEstimator {
 public:
  explicit LayoutEstimator(const LayoutProblem& problem) : problem_(problem) {}

  // Throws Error as plan_layout() does.
  [[nodiscard]] LayoutPlan estimate(const Layout& layout);

 private:
  // The model without stages, on the processes of one stage.
  struct Whole {
    LayoutPlan plan;
    double store_bytes = 0;
    std::int64_t micro_batches = 0;
  };
  void check_stages(const Layout& layout);
  [[nodiscard]] const Whole& whole(const Layout& layout);
  [[nodiscard]] LayoutPlan estimate_stages(const Layout& layout);

  const LayoutProblem& problem_;
  std::map<Layout, Whole> wholes_;  // by the layout with stages of one chunk
  std::set<Layout> possible_;       // groups that the model allows, without batches and recomputation
};

}  // namespace hone
