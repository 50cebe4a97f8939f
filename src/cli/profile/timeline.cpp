#include "cli/profile/timeline.h"

#include <algorithm>

#include "cli/profile/one_op.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

enum TraceRow : int { kSteps = 1, kModules = 2, kOperations = 3 };

Json row_name(TraceRow row, std::string_view name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", static_cast<int>(row)}, {"args", {{"name", name}}}};
}

Json span(TraceRow row, std::string_view name, std::string_view category, double begin, double seconds) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", begin * 1e6},
          {"dur", seconds * 1e6},
          {"pid", 1},
          {"tid", static_cast<int>(row)}};
}

// Adds a span for each sequence of consecutive operations that have the same scope and phase.
void add_modules(Json& events, const Timeline& timeline, double origin) {
  std::size_t first = 0;
  const auto same = [&](std::size_t a, std::size_t b) {
    const ProfiledNode& x = timeline.nodes[timeline.runs[a].node];
    const ProfiledNode& y = timeline.nodes[timeline.runs[b].node];
    return x.scope == y.scope && x.phase == y.phase;
  };
  for (std::size_t i = 0; i < timeline.runs.size(); ++i) {
    if (i + 1 < timeline.runs.size() && same(first, i + 1)) continue;
    const ProfiledRun& begin = timeline.runs[first];
    const ProfiledRun& end = timeline.runs[i];
    const ProfiledNode& node = timeline.nodes[begin.node];
    events.push_back(span(kModules, node.scope.empty() ? "model" : node.scope, name_of(node.phase),
                          begin.begin - origin, end.begin + end.seconds - begin.begin));
    first = i + 1;
  }
}

}  // namespace

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

std::size_t Timeline::add_program(const Program& program, const HostBatch& batch) {
  const std::size_t first = nodes.size();
  for (const Node& node : program.nodes()) {
    const Work work = work_of(program, node, batch);
    nodes.push_back({.op = std::string(node.op->name()),
                     .category = name_of(node.op->category()),
                     .scope = node.scope,
                     .phase = node.phase,
                     .shapes = shapes_of(program, node),
                     .flops = work.flops,
                     .bytes = work.bytes});
  }
  return first;
}

void Timeline::add_run(std::size_t first, const Program& program, double end, std::span<const double> seconds) {
  HONE_ASSERT(seconds.size() == program.nodes().size(), seconds.size(), " times of ", program.nodes().size(), " nodes");
  double begin = end;
  for (const double each : seconds) begin -= each;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (!program.nodes()[i].op->is_view()) runs.push_back({first + i, begin, seconds[i]});
    begin += seconds[i];
  }
}

Json chrome_trace(const Timeline& timeline, std::string_view title) {
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", title}}}});
  events.push_back(row_name(kSteps, "steps"));
  events.push_back(row_name(kModules, "modules"));
  events.push_back(row_name(kOperations, "operations"));
  const double origin = timeline.steps.empty() ? 0 : timeline.steps.front().begin;
  for (std::size_t i = 0; i < timeline.steps.size(); ++i) {
    const ProfiledStep& step = timeline.steps[i];
    events.push_back(span(kSteps, text_of("step ", i + 1), "step", step.begin - origin, step.seconds));
  }
  add_modules(events, timeline, origin);
  for (const ProfiledRun& run : timeline.runs) {
    const ProfiledNode& node = timeline.nodes[run.node];
    Json event = span(kOperations, node.op, node.category, run.begin - origin, run.seconds);
    event["args"] = {{"module", node.scope},
                     {"phase", name_of(node.phase)},
                     {"shapes", node.shapes},
                     {"flops", node.flops},
                     {"bytes", node.bytes}};
    events.push_back(std::move(event));
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace hone
