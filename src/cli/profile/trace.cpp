#include "cli/profile/trace.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

enum TraceRow : int { kSteps = 1, kModules = 2, kOperations = 3, kLaunches = 4 };
constexpr int kProcess = 1;

// Microseconds of a time, with whole nanoseconds. Spans that follow each other then share a boundary.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

class TraceWriter {
 public:
  TraceWriter(const Timeline& timeline, double origin) : timeline_(timeline), origin_(origin) {}

  void name_rows(std::string_view title) {
    events_.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", kProcess}, {"args", {{"name", title}}}});
    name_row(kSteps, "steps");
    name_row(kModules, "modules");
    name_row(kOperations, "operations");
    if (timeline_.asynchronous) name_row(kLaunches, "host launches");
  }

  Json& span(TraceRow row, std::string_view name, std::string_view category, double begin, double end) {
    const double from = at(begin);
    // The difference of two numbers of whole nanoseconds is rounded to whole nanoseconds again.
    const double duration = std::round((at(end) - from) * 1e3) / 1e3;
    events_.push_back({{"name", name},
                       {"cat", category},
                       {"ph", "X"},
                       {"ts", from},
                       {"dur", duration},
                       {"pid", kProcess},
                       {"tid", static_cast<int>(row)}});
    return events_.back();
  }

  // Adds a span for each sequence of consecutive operations that have the same scope and phase.
  void add_modules() {
    std::size_t first = 0;
    const auto same = [&](std::size_t a, std::size_t b) {
      const ProfiledNode& x = node_of(a);
      const ProfiledNode& y = node_of(b);
      return x.scope == y.scope && x.phase == y.phase;
    };
    for (std::size_t i = 0; i < timeline_.runs.size(); ++i) {
      if (i + 1 < timeline_.runs.size() && same(first, i + 1)) continue;
      const ProfiledRun& last = timeline_.runs[i];
      const ProfiledNode& node = node_of(first);
      (void)span(kModules, node.scope.empty() ? "model" : node.scope, name_of(node.phase), timeline_.runs[first].begin,
                 last.begin + last.seconds);
      first = i + 1;
    }
  }

  void add_operation(std::size_t index) {
    const ProfiledRun& run = timeline_.runs[index];
    const ProfiledNode& node = node_of(index);
    Json& event = span(kOperations, node.op, node.category, run.begin, run.begin + run.seconds);
    event["args"] = {{"module", node.scope},
                     {"phase", name_of(node.phase)},
                     {"shapes", node.shapes},
                     {"flops", node.flops},
                     {"bytes", node.bytes}};
    if (!timeline_.asynchronous) return;
    (void)span(kLaunches, node.op, "launch", run.launch.begin, run.launch.begin + run.launch.seconds);
    flow("s", kLaunches, index, run.launch.begin);
    flow("f", kOperations, index, run.begin);
  }

  void add_counters(std::size_t index) {
    const ProfiledRun& run = timeline_.runs[index];
    const ProfiledNode& node = node_of(index);
    counter("bytes in use", run.begin,
            {{"weights, gradients, states", timeline_.held},
             {"activations", node.activations},
             {"workspace", node.workspace}});
    const double seconds = std::max(run.seconds, 1e-9);
    counter("GFLOP/s", run.begin, {{"rate", node.flops / seconds * 1e-9}});
    counter("GB/s", run.begin, {{"rate", node.bytes / seconds * 1e-9}});
  }

  // Ends the counters of a step, so that nothing is shown between the steps.
  void end_counters(double end) {
    counter("bytes in use", end,
            {{"weights, gradients, states", timeline_.held}, {"activations", 0}, {"workspace", 0}});
    counter("GFLOP/s", end, {{"rate", 0.0}});
    counter("GB/s", end, {{"rate", 0.0}});
  }

  [[nodiscard]] Json finish() { return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}; }

 private:
  [[nodiscard]] double at(double time) const { return microseconds(time - origin_); }
  [[nodiscard]] const ProfiledNode& node_of(std::size_t run) const { return timeline_.nodes[timeline_.runs[run].node]; }
  void name_row(TraceRow row, std::string_view name) {
    events_.push_back({{"name", "thread_name"},
                       {"ph", "M"},
                       {"pid", kProcess},
                       {"tid", static_cast<int>(row)},
                       {"args", {{"name", name}}}});
  }
  void flow(std::string_view phase, TraceRow row, std::size_t id, double time) {
    events_.push_back({{"name", "launch"},
                       {"cat", "launch"},
                       {"ph", phase},
                       {"bp", "e"},
                       {"id", id},
                       {"ts", at(time)},
                       {"pid", kProcess},
                       {"tid", static_cast<int>(row)}});
  }
  void counter(std::string_view name, double time, Json values) {
    events_.push_back({{"name", name}, {"ph", "C"}, {"ts", at(time)}, {"pid", kProcess}, {"args", std::move(values)}});
  }

  const Timeline& timeline_;
  double origin_;
  Json events_ = Json::array();
};

}  // namespace

Json chrome_trace(const Timeline& timeline, std::string_view title) {
  TraceWriter writer(timeline, timeline.steps.empty() ? 0 : timeline.steps.front().begin);
  writer.name_rows(title);
  for (std::size_t i = 0; i < timeline.steps.size(); ++i) {
    const ProfiledStep& step = timeline.steps[i];
    (void)writer.span(kSteps, text_of("step ", i + 1), "step", step.begin, step.begin + step.seconds);
  }
  writer.add_modules();
  for (std::size_t i = 0; i < timeline.runs.size(); ++i) {
    writer.add_operation(i);
    writer.add_counters(i);
  }
  for (const ProfiledStep& step : timeline.steps) writer.end_counters(step.begin + step.seconds);
  return writer.finish();
}

}  // namespace hone
