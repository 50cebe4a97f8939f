// Records when each operation of some training steps ran, and exports the record as a Chrome trace.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "data/host_batch.h"
#include "program/program.h"

namespace hone {

// Returns a scope without the layer numbers: "layers.3.mlp" -> "layers.*.mlp". An empty scope gives "model".
[[nodiscard]] std::string module_of_scope(std::string_view scope);

// An operation of a program with the work of one run.
struct ProfiledNode {
  std::string op;
  std::string_view category;  // one of kCategories
  std::string scope;          // "layers.3.attention"
  Phase phase = Phase::kForward;
  std::string shapes;
  double flops = 0;
  double bytes = 0;
};

// One run of an operation. Times are seconds on a clock whose origin the caller chooses.
struct ProfiledRun {
  std::size_t node = 0;  // index of Timeline::nodes
  double begin = 0;
  double seconds = 0;
};
// One training step, on the same clock.
struct ProfiledStep {
  double begin = 0;
  double seconds = 0;
};

struct Timeline {
  std::vector<ProfiledNode> nodes;
  std::vector<ProfiledRun> runs;
  std::vector<ProfiledStep> steps;

  // Adds the nodes of a program with their work on the batch. Returns the index of the first one.
  std::size_t add_program(const Program& program, const HostBatch& batch);
  // Adds a run of the program whose first node is `first`. The run ended at `end` and spent seconds[i] on node i, as
  // NodeTimes measures it. Views are left out.
  void add_run(std::size_t first, const Program& program, double end, std::span<const double> seconds);
};

// Returns the timeline in Chrome's trace event format, which ui.perfetto.dev opens. It has a row for the steps, one for
// the modules and one for the operations.
[[nodiscard]] Json chrome_trace(const Timeline& timeline, std::string_view title);

// Returns "forward", "backward" or "update".
[[nodiscard]] std::string_view name_of(Phase phase);

}  // namespace hone
