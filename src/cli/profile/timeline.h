// When every operation of some training steps ran.
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

// A scope without the numbers of its layers: "layers.3.mlp" -> "layers.*.mlp".
[[nodiscard]] std::string module_of_scope(std::string_view scope);

// An operation of a program, with the work of one run.
struct ProfiledNode {
  std::string op;
  std::string_view category;  // one of kCategories
  std::string scope;          // "layers.3.attention"
  Phase phase = Phase::forward;
  std::string shapes;
  double flops = 0;
  double bytes = 0;
};

// Seconds, from an origin of the caller's choice.
struct ProfiledRun {
  std::size_t node = 0;
  double begin = 0;
  double seconds = 0;
};
struct ProfiledStep {
  double begin = 0;
  double seconds = 0;
};

struct Timeline {
  std::vector<ProfiledNode> nodes;
  std::vector<ProfiledRun> runs;
  std::vector<ProfiledStep> steps;

  // Adds the operations of a program, views left out; the work is that of the batch. Returns the index of its first.
  std::size_t add_program(const Program& program, const HostBatch& batch);
  // A run of that program which was over at `end`: `seconds` by node, as NodeTimes adds them up.
  void add_run(std::size_t first, const Program& program, double end, std::span<const double> seconds);
};

// Chrome's trace format (Perfetto opens it): a row each of steps, modules and operations.
[[nodiscard]] Json chrome_trace(const Timeline& timeline, std::string_view title);

[[nodiscard]] std::string_view name_of(Phase phase);

}  // namespace hone
