#include "cli/profile/counters.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <tuple>

#include "cli/profile/node_clock.h"
#include "core/json_value.h"

namespace hone {
namespace {

constexpr double kCacheLine = 64;  // bytes

// A column of the table: its value from the counts of an operation, or nullopt if an event is not counted.
struct CounterColumn {
  const char* title;
  std::optional<double> (*value)(const CounterReport& report, const CountedKernel& kernel);
};

std::optional<double> counted(const CounterReport& report, const CountedKernel& kernel, std::string_view name) {
  const auto found = std::ranges::find(report.names, name);
  if (found == report.names.end()) return std::nullopt;
  return kernel.counts[static_cast<std::size_t>(found - report.names.begin())];
}

std::optional<double> counted_ratio(std::optional<double> above, std::optional<double> below) {
  if (!above || !below || *below <= 0) return std::nullopt;
  return *above / *below;
}

constexpr std::array<CounterColumn, 6> kColumns{{
    {"cores",
     [](const auto& report, const auto& kernel) {
       return counted_ratio(counted(report, kernel, "cpu_ns"), kernel.seconds * 1e9);
     }},
    {"GHz",
     [](const auto& report, const auto& kernel) {
       return counted_ratio(counted(report, kernel, "cycles"), counted(report, kernel, "cpu_ns"));
     }},
    {"instr/cycle",
     [](const auto& report, const auto& kernel) {
       return counted_ratio(counted(report, kernel, "instructions"), counted(report, kernel, "cycles"));
     }},
    {"missed GB/s",
     [](const auto& report, const auto& kernel) {
       const auto misses = counted(report, kernel, "cache_misses");
       return misses ? counted_ratio(*misses * kCacheLine * 1e-9, kernel.seconds) : std::nullopt;
     }},
    {"page faults", [](const auto& report, const auto& kernel) { return counted(report, kernel, "page_faults"); }},
    {"switches", [](const auto& report, const auto& kernel) { return counted(report, kernel, "context_switches"); }},
}};

}  // namespace

void NodeCounters::begin_run(Stopwatch&) { counts_.clear(); }

void NodeCounters::before_node(std::size_t, Stopwatch&) {
  before_ = events_.read();
  begin_ = host_seconds();
}

void NodeCounters::after_node(std::size_t, Stopwatch&) {
  const double seconds = host_seconds() - begin_;
  std::vector<double> counts = events_between(before_, events_.read());
  counts.push_back(seconds);
  counts_.push_back(std::move(counts));
}

CounterReport counter_report(const NodeCounters& counters, const Timeline& timeline, std::span<const CountedRun> runs) {
  CounterReport report{.names = counters.events().names(), .refusal = counters.events().refusal()};
  const auto steps = static_cast<double>(std::max<std::size_t>(timeline.steps.size(), 1));
  std::map<std::tuple<std::string, std::string, Phase>, CountedKernel> kernels;
  for (const CountedRun& run : runs) {
    const ProfiledNode& node = timeline.nodes[run.node];
    const std::string module = module_of(node);
    CountedKernel& kernel = kernels[{node.op, module, node.phase}];
    kernel.op = node.op;
    kernel.module = module;
    kernel.phase = name_of(node.phase);
    kernel.counts.resize(report.names.size());
    for (std::size_t i = 0; i < report.names.size(); ++i) kernel.counts[i] += run.counts[i] / steps;
    kernel.seconds += run.counts.back() / steps;
  }
  for (auto& [key, kernel] : kernels) report.kernels.push_back(std::move(kernel));
  std::ranges::stable_sort(report.kernels,
                           [](const CountedKernel& a, const CountedKernel& b) { return a.seconds > b.seconds; });
  return report;
}

std::string to_text(const CounterReport& report, std::size_t most) {
  std::string text = report.refusal.empty() ? "" : report.refusal + "\n";
  if (report.kernels.empty()) return text;
  std::array<char, 120> part{};
  const auto append = [&]<class... Values>(const char* pattern, Values... values) {
    std::snprintf(part.data(), part.size(), pattern, values...);
    text += part.data();
  };
  append("%-28s %-24s %-8s %10s", "events per step", "module", "phase", "ms");
  const auto has = [&](const CounterColumn& column) { return column.value(report, report.kernels[0]).has_value(); };
  for (const CounterColumn& column : kColumns) {
    if (has(column)) append(" %12s", column.title);
  }
  text += "\n";
  for (std::size_t i = 0; i < std::min(most, report.kernels.size()); ++i) {
    const CountedKernel& kernel = report.kernels[i];
    append("%-28s %-24s %-8s %10.3f", kernel.op.c_str(), kernel.module.c_str(), std::string(kernel.phase).c_str(),
           kernel.seconds * 1e3);
    for (const CounterColumn& column : kColumns) {
      if (has(column)) append(" %12.2f", column.value(report, kernel).value_or(0));
    }
    text += "\n";
  }
  return text;
}

Json to_json(const CounterReport& report) {
  Json kernels = Json::array();
  for (const CountedKernel& kernel : report.kernels) {
    Json row = {{"op", kernel.op}, {"module", kernel.module}, {"phase", kernel.phase}, {"ms", kernel.seconds * 1e3}};
    for (std::size_t i = 0; i < report.names.size(); ++i) row[std::string(report.names[i])] = kernel.counts[i];
    kernels.push_back(std::move(row));
  }
  return {{"refusal", report.refusal}, {"kernels", std::move(kernels)}};
}

}  // namespace hone
