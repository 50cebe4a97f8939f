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

// A figure computed from counted events, such as a share of a peak.
struct CounterFigure {
  const char* key;    // in kernel_summary.json
  const char* title;  // in tables
  double scale;       // of the figure in tables
  // The figure; nullopt if an event that it needs is not counted or is 0 where it divides.
  std::optional<double> (*value)(const CounterReport& report, const CountedKernel& kernel);
};

constexpr double kCacheLine = 64;  // bytes
using Figure = std::optional<double>;

Figure counted(const CounterReport& report, const CountedKernel& kernel, std::string_view name) {
  const auto found = std::ranges::find(report.names, name);
  if (found == report.names.end()) return std::nullopt;
  return kernel.counts[static_cast<std::size_t>(found - report.names.begin())];
}

Figure counted_ratio(Figure above, Figure below) {
  if (!above || !below || *below <= 0) return std::nullopt;
  return *above / *below;
}

// Returns the figure "event above / event below".
template <const char* above, const char* below>
Figure ratio_of(const CounterReport& report, const CountedKernel& kernel) {
  return counted_ratio(counted(report, kernel, above), counted(report, kernel, below));
}

constexpr char kCycles[] = "cycles";
constexpr char kCpuTime[] = "cpu_ns";
constexpr char kInstructions[] = "instructions";
constexpr char kGpuTime[] = "gpu_ns";
constexpr char kDramPeak[] = "dram_peak_ns";
constexpr char kTensorActive[] = "tensor_active_ns";
constexpr char kOccupancy[] = "occupancy_ns";
constexpr char kL2Hits[] = "l2_hits";
constexpr char kL2Sectors[] = "l2_sectors";

constexpr std::array<CounterFigure, 13> kFigures{{
    {"cores", "cores", 1,
     [](const auto& report, const auto& kernel) {
       return counted_ratio(counted(report, kernel, kCpuTime), kernel.seconds * 1e9);
     }},
    {"ghz", "GHz", 1, ratio_of<kCycles, kCpuTime>},
    {"instructions_per_cycle", "instr/cycle", 1, ratio_of<kInstructions, kCycles>},
    {"missed_gbps", "missed GB/s", 1,
     [](const auto& report, const auto& kernel) {
       const auto misses = counted(report, kernel, "cache_misses");
       return misses ? counted_ratio(*misses * kCacheLine * 1e-9, kernel.seconds) : std::nullopt;
     }},
    {"page_faults", "page faults", 1,
     [](const auto& report, const auto& kernel) { return counted(report, kernel, "page_faults"); }},
    {"context_switches", "switches", 1,
     [](const auto& report, const auto& kernel) { return counted(report, kernel, "context_switches"); }},
    {"dram_read_bytes", "DRAM read MB", 1e-6,
     [](const auto& report, const auto& kernel) { return counted(report, kernel, "dram_read_bytes"); }},
    {"dram_written_bytes", "written MB", 1e-6,
     [](const auto& report, const auto& kernel) { return counted(report, kernel, "dram_written_bytes"); }},
    {"dram_share", "% DRAM peak", 100, ratio_of<kDramPeak, kGpuTime>},
    {"tensor_share", "% tensor", 100, ratio_of<kTensorActive, kGpuTime>},
    {"occupancy", "% occupancy", 100, ratio_of<kOccupancy, kGpuTime>},
    {"l2_hit_rate", "% L2 hits", 100, ratio_of<kL2Hits, kL2Sectors>},
    {"gpu_instructions", "M instr", 1e-6,
     [](const auto& report, const auto& kernel) { return counted(report, kernel, "gpu_instructions"); }},
}};

// A table that is built line by line.
class CounterTable {
 public:
  CounterTable(const CounterReport& report, std::span<const CountedKernel> rows) : report_(report), rows_(rows) {
    for (const CounterFigure& figure : kFigures) {
      if (std::ranges::any_of(rows, [&](const auto& row) { return figure.value(report, row).has_value(); }))
        figures_.push_back(figure);
    }
  }

  // heading: the titles of the first columns. first: writes those columns of a row.
  template <class First>
  std::string text(const std::string& heading, std::size_t most, First first) {
    std::string text = heading;
    std::array<char, 64> part{};
    for (const CounterFigure& figure : figures_) {
      std::snprintf(part.data(), part.size(), " %12s", figure.title);
      text += part.data();
    }
    text += "\n";
    for (const CountedKernel& row : rows_.first(std::min(most, rows_.size()))) {
      text += first(row);
      for (const CounterFigure& figure : figures_) {
        std::snprintf(part.data(), part.size(), " %12.2f", figure.value(report_, row).value_or(0) * figure.scale);
        text += part.data();
      }
      text += "\n";
    }
    return text;
  }

 private:
  const CounterReport& report_;
  std::span<const CountedKernel> rows_;
  std::vector<CounterFigure> figures_;
};

Json events_json(const CounterReport& report, const CountedKernel& kernel) {
  Json row = {{"runs", kernel.runs}, {"ms", kernel.seconds * 1e3}};
  for (std::size_t i = 0; i < report.names.size(); ++i) row[std::string(report.names[i])] = kernel.counts[i];
  for (const CounterFigure& figure : kFigures) {
    if (const Figure value = figure.value(report, kernel)) row[figure.key] = *value;
  }
  return row;
}

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

std::vector<CountedKernel> counted_operations(std::size_t events, const Timeline& timeline,
                                              std::span<const CountedRun> runs) {
  const auto steps = static_cast<double>(std::max<std::size_t>(timeline.steps.size(), 1));
  std::map<std::tuple<std::string, std::string, Phase>, CountedKernel> kernels;
  for (const CountedRun& run : runs) {
    const ProfiledNode& node = timeline.nodes[run.node];
    const std::string module = module_of(node);
    CountedKernel& kernel = kernels[{node.op, module, node.phase}];
    kernel.op = node.op;
    kernel.module = module;
    kernel.phase = name_of(node.phase);
    kernel.runs += 1 / steps;
    kernel.counts.resize(events);
    for (std::size_t i = 0; i < events; ++i) kernel.counts[i] += run.counts[i] / steps;
    kernel.seconds += run.counts.back() / steps;
  }
  std::vector<CountedKernel> list;
  list.reserve(kernels.size());
  for (auto& [key, kernel] : kernels) list.push_back(std::move(kernel));
  std::ranges::stable_sort(list, [](const CountedKernel& a, const CountedKernel& b) { return a.seconds > b.seconds; });
  return list;
}

CounterReport counter_report(const NodeCounters& counters, const Timeline& timeline, std::span<const CountedRun> runs) {
  CounterReport report{.names = counters.events().names(), .refusal = counters.events().refusal()};
  report.kernels = counted_operations(report.names.size(), timeline, runs);
  return report;
}

std::string to_text(const CounterReport& report, std::size_t most) {
  std::string text = report.refusal.empty() ? "" : report.refusal + "\n";
  if (report.kernels.empty()) return text;
  std::array<char, 160> part{};
  std::snprintf(part.data(), part.size(), "%-28s %-24s %-8s %10s", ("events per " + std::string(report.of)).c_str(),
                "module", "phase", "ms");
  text += CounterTable(report, report.kernels).text(part.data(), most, [&](const CountedKernel& row) {
    std::snprintf(part.data(), part.size(), "%-28s %-24s %-8s %10.3f", row.op.c_str(), row.module.c_str(),
                  std::string(row.phase).c_str(), row.seconds * 1e3);
    return std::string(part.data());
  });
  if (report.launched.empty()) return text;
  std::snprintf(part.data(), part.size(), "\n%-54s %7s %10s", "kernel", "runs", "ms");
  return text + CounterTable(report, report.launched).text(part.data(), most, [&](const CountedKernel& row) {
    std::snprintf(part.data(), part.size(), "%-54.54s %7.0f %10.3f", row.op.c_str(), row.runs, row.seconds * 1e3);
    return std::string(part.data());
  });
}

Json to_json(const CounterReport& report) {
  Json kernels = Json::array();
  for (const CountedKernel& kernel : report.kernels) {
    Json row = {{"op", kernel.op}, {"module", kernel.module}, {"phase", kernel.phase}};
    row.update(events_json(report, kernel));
    kernels.push_back(std::move(row));
  }
  Json launched = Json::array();
  for (const CountedKernel& kernel : report.launched) {
    Json row = {{"kernel", kernel.op}};
    row.update(events_json(report, kernel));
    launched.push_back(std::move(row));
  }
  return {{"refusal", report.refusal},
          {"of", report.of},
          {"kernels", std::move(kernels)},
          {"launched", std::move(launched)}};
}

}  // namespace hone
