// Records when each operation of some training steps ran, and what it worked on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/profile/node_clock.h"
#include "data/host_batch.h"
#include "program/executable.h"
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
  std::size_t activations = 0;  // bytes of activations that are alive while it runs
  std::size_t workspace = 0;    // bytes of its scratch buffer
};

// Returns the module of an operation without layer numbers; "update" for all of the update.
[[nodiscard]] std::string module_of(const ProfiledNode& node);

// One run of an operation. Times are seconds on a clock whose origin the caller chooses.
struct ProfiledRun {
  std::size_t node = 0;  // index of Timeline::nodes
  double begin = 0;
  double seconds = 0;
  HostSpan launch = {};  // on the same clock; only if Timeline::asynchronous
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
  bool asynchronous = false;  // a GPU: the host launches an operation before the device runs it
  std::size_t held = 0;       // bytes that the device holds besides the arena: weights, gradients, states, inputs

  // Adds the nodes of an executable's program with their work on the batch. Returns the index of the first one.
  std::size_t add_program(const Executable& executable, const HostBatch& batch);
  // Adds a run of the program whose first node is `first`. The run ended at `end`, and the clock has observed it. Views
  // are left out. behind: seconds by which the host's times are ahead of this clock.
  void add_run(std::size_t first, const Program& program, double end, const NodeClock& clock, double behind = 0);
};

// Returns "forward", "backward" or "update".
[[nodiscard]] std::string_view name_of(Phase phase);

}  // namespace hone
