#include "cli/profile/launch_counters.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "core/error.h"

namespace hone {
namespace {

// Notes which launches belong to which node of a run.
class LaunchObserver final : public NodeObserver {
 public:
  explicit LaunchObserver(const GpuCounters& counters) : counters_(counters) {}

  void begin_run(Stopwatch&) override { nodes_.clear(); }
  void before_node(std::size_t node, Stopwatch&) override {
    nodes_.push_back({.node = node, .begin = counters_.launches()});
  }
  void after_node(std::size_t, Stopwatch&) override { nodes_.back().end = counters_.launches(); }

  [[nodiscard]] std::span<const NodeLaunches> nodes() const { return nodes_; }

 private:
  const GpuCounters& counters_;
  std::vector<NodeLaunches> nodes_;
};

void add_counts(std::vector<double>& sums, const std::vector<double>& counts) {
  sums.resize(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];
}

}  // namespace

CounterReport count_launches(Device& gpu, const ObservedStep& step) {
  try {
    const std::unique_ptr<GpuCounters> counters = make_gpu_counters(gpu);
    LaunchObserver observer(*counters);
    Timeline timeline;
    std::vector<NodeLaunches> nodes;
    const std::vector<KernelEvents> events = counters->count([&] {
      timeline = {};
      nodes.clear();
      step(observer, [&](const Executable& executable, const HostBatch& batch) {
        const std::size_t first = timeline.add_program(executable, batch);
        for (const NodeLaunches& each : observer.nodes()) {
          if (!executable.program().nodes()[each.node].op->is_view())
            nodes.push_back({first + each.node, each.begin, each.end});
        }
      });
    });
    return launch_report(counters->names(), timeline, nodes, events);
  } catch (const Error& error) {
    return {.names = {}, .refusal = text_of("not counted: ", error.what())};
  }
}

CounterReport launch_report(std::vector<std::string_view> names, const Timeline& timeline,
                            std::span<const NodeLaunches> nodes, std::span<const KernelEvents> events) {
  const auto time = static_cast<std::size_t>(std::ranges::find(names, "gpu_ns") - names.begin());
  HONE_ASSERT(time < names.size(), "the time of kernels is not counted");
  std::vector<CountedRun> runs;
  for (const NodeLaunches& each : nodes) {
    CountedRun run{.node = each.node, .counts = std::vector<double>(names.size(), 0.0)};
    for (std::size_t launch = each.begin; launch < each.end; ++launch) add_counts(run.counts, events[launch].counts);
    run.counts.push_back(run.counts[time] * 1e-9);
    runs.push_back(std::move(run));
  }
  std::map<std::string, CountedKernel> kernels;
  for (const KernelEvents& each : events) {
    CountedKernel& kernel = kernels[each.kernel];
    kernel.runs += 1;
    add_counts(kernel.counts, each.counts);
  }
  CounterReport report{.names = std::move(names), .refusal = {}, .of = "micro-batch and update"};
  report.kernels = counted_operations(report.names.size(), timeline, runs);
  for (auto& [symbol, kernel] : kernels) {
    kernel.op = function_name(symbol);
    kernel.seconds = kernel.counts[time] * 1e-9;
    report.launched.push_back(std::move(kernel));
  }
  std::ranges::stable_sort(report.launched,
                           [](const CountedKernel& a, const CountedKernel& b) { return a.seconds > b.seconds; });
  return report;
}

std::string function_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? demangled.get() : symbol;
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (std::size_t at = name.find(kUnnamed); at != std::string::npos; at = name.find(kUnnamed)) {
    name.erase(at, kUnnamed.size());
  }
  // Outside of template arguments the parameters begin at the first parenthesis, and the name after the last space.
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (depth > 0) continue;
    if (name[i] == ' ') begin = i + 1;
    if (name[i] == '(') {
      name.resize(i);
      break;
    }
  }
  return name.substr(begin);
}

}  // namespace hone
