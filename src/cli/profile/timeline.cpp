#include "cli/profile/timeline.h"

#include <algorithm>

#include "cli/profile/one_op.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      break;
  }
  return "update";
}

std::string module_of_scope(std::string_view scope) {
  if (scope.empty()) return "model";
  std::vector<std::string> parts = split(scope, '.');
  for (std::string& part : parts) {
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) part = "*";
  }
  return join(parts, ".");
}

std::string module_of(const ProfiledNode& node) {
  return node.phase == Phase::kUpdate ? "update" : module_of_scope(node.scope);
}

std::size_t Timeline::add_program(const Executable& executable, const HostBatch& batch) {
  const Program& program = executable.program();
  const std::vector<std::size_t> alive = activation_bytes(program);
  const std::size_t first = nodes.size();
  for (std::size_t i = 0; i < program.nodes().size(); ++i) {
    const Node& node = program.nodes()[i];
    const Work work = work_of(program, node, batch);
    nodes.push_back({.op = std::string(node.op->name()),
                     .category = name_of(node.op->category()),
                     .scope = node.scope,
                     .phase = node.phase,
                     .shapes = shapes_of(program, node),
                     .flops = work.flops,
                     .bytes = work.bytes,
                     .activations = alive[i],
                     .workspace = executable.plan().workspace_bytes[i]});
  }
  return first;
}

void Timeline::add_run(std::size_t first, const Program& program, double end, const NodeClock& clock, double behind) {
  const std::span<const double> seconds = clock.seconds();
  HONE_ASSERT(seconds.size() == program.nodes().size(), seconds.size(), " times of ", program.nodes().size(), " nodes");
  double begin = end;
  for (const double each : seconds) begin -= each;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (!program.nodes()[i].op->is_view()) {
      ProfiledRun run{.node = first + i, .begin = begin, .seconds = seconds[i]};
      if (asynchronous)
        run.launch = {.begin = clock.launches()[i].begin - behind, .seconds = clock.launches()[i].seconds};
      runs.push_back(run);
    }
    begin += seconds[i];
  }
}

}  // namespace hone
