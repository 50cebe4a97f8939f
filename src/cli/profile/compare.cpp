#include "cli/profile/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cli/profile/counted_reason.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/printed.h"
#include "core/strings.h"

namespace hone {
namespace {

using KernelKey = std::tuple<std::string, std::string, std::string>;  // name, module, phase

// Sums over the shapes with which an operation ran.
struct KernelTotal {
  double ms = 0;
  double runs = 0;
  double flops = 0;
  double bytes = 0;
  std::vector<std::string> shapes;
  Json counted;  // its row of "counters"; null without one
};

double summary_number(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : 0;
}
std::string summary_word(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

using KernelTotals = std::map<KernelKey, KernelTotal>;

KernelTotals kernel_totals(const Json& summary) {
  KernelTotals all;
  const auto add = [&](const char* list, const char* name, const std::string& module) {
    if (!summary.contains(list)) return;
    for (const Json& row : summary[list]) {
      KernelTotal& total = all[{summary_word(row, name), module.empty() ? summary_word(row, "module") : module,
                                summary_word(row, "phase")}];
      total.ms += summary_number(row, "ms");
      total.runs += row.contains("runs") ? summary_number(row, "runs") : 1;
      total.flops += summary_number(row, "flops");
      total.bytes += summary_number(row, "bytes");
      if (row.contains("shapes")) total.shapes.push_back(summary_word(row, "shapes"));
    }
  };
  add("kernels", "op", {});
  add("phases", "name", "step");
  for (auto& [key, total] : all) std::ranges::sort(total.shapes);
  if (!summary.contains("counters") || !summary["counters"].contains("kernels")) return all;
  for (const Json& row : summary["counters"]["kernels"]) {
    const auto found = all.find({summary_word(row, "op"), summary_word(row, "module"), summary_word(row, "phase")});
    if (found != all.end()) found->second.counted = row;
  }
  return all;
}

KernelTotals reward_totals(const Json& summary) {
  KernelTotals all;
  if (!summary.contains("rewards")) return all;
  for (const Json& row : summary["rewards"]) {
    all[{summary_word(row, "name"), "", ""}] = {.ms = summary_number(row, "ms"),
                                                .runs = summary_number(row, "completions")};
  }
  return all;
}

// Rates of the roofline of a summary: FLOP/s and byte/s.
struct SummaryLimits {
  double flops = 0;
  double bytes = 0;
};
SummaryLimits summary_limits(const Json& summary) {
  if (!summary.contains("limits")) return {};
  return {.flops = summary_number(summary["limits"], "product_tflops") * 1e12,
          .bytes = summary_number(summary["limits"], "copy_gbps") * 1e9};
}

// Returns which work limits an operation.
bool is_limited_by_flops(const KernelTotal& total, const SummaryLimits& limits) {
  if (total.bytes <= 0 || limits.bytes <= 0) return total.flops > 0;
  return total.flops > 0 && limits.flops > 0 && total.flops / limits.flops >= total.bytes / limits.bytes;
}

std::string digits(double value) { return printed("%.4g", value); }

std::string from_to(double before, double after, const std::string& unit) {
  return text_of(digits(after), unit, after > before ? ", up from " : ", down from ", digits(before), unit);
}

std::string shapes_text(const KernelTotal& before, const KernelTotal& after) {
  if (before.shapes.empty() || after.shapes.empty() || before.shapes == after.shapes) return "other work a call";
  return text_of("other shapes: ", after.shapes[0], after.shapes.size() > 1 ? " and more" : "", ", before ",
                 before.shapes[0], before.shapes.size() > 1 ? " and more" : "");
}

// Fills the parts and the reason of an operation that is in both profiles.
void explain(const KernelTotal& before, const KernelTotal& after, bool flops, KernelChange& change) {
  const double change_ms = change.change();
  if (before.ms <= 0 || after.ms <= 0) return;
  const double ratio = std::log(after.ms / before.ms);
  const double mean = std::abs(ratio) < 1e-12 ? before.ms : change_ms / ratio;
  const double all_before = flops ? before.flops : before.bytes;
  const double all_after = flops ? after.flops : after.bytes;
  const bool has_calls = before.runs > 0 && after.runs > 0;
  if (has_calls) change.calls = mean * std::log(after.runs / before.runs);
  const bool has_work = has_calls && all_before > 0 && all_after > 0;
  const double work = has_work ? all_after / after.runs / (all_before / before.runs) : 1;
  change.work = mean * std::log(work);
  change.rate = change_ms - change.calls - change.work;
  const double largest = std::max({std::abs(change.calls), std::abs(change.work), std::abs(change.rate)});
  if (largest < 1e-9) return;
  if (largest == std::abs(change.calls)) {
    change.reason = text_of(change.calls > 0 ? "more" : "fewer", " calls: ", from_to(before.runs, after.runs, ""));
  } else if (largest == std::abs(change.work)) {
    change.reason = shapes_text(before, after);
  } else if (!has_work) {
    change.reason = change.rate > 0 ? "slower" : "faster";
  } else {
    change.reason = text_of(
        change.rate > 0 ? "lower" : "higher",
        " rate: ", from_to(all_before / before.ms * 1e-6, all_after / after.ms * 1e-6, flops ? " GFLOP/s" : " GB/s"));
  }
  if (largest != std::abs(change.rate)) return;
  const std::string counted = counted_reason(before.counted, after.counted, work, change.rate > 0);
  if (!counted.empty()) change.reason += "; " + counted;
}

std::string step_line(const char* name, const Json& summary) {
  const double unprofiled = summary_number(summary, "unprofiled_step_ms");
  const double step = unprofiled > 0 ? unprofiled : summary_number(summary, "step_ms");
  return text_of(name, ": ", summary_word(summary, "what"), " on ", summary_word(summary, "machine"), ", ",
                 digits(step), " ms a step, ",
                 format_count(std::llround(summary_number(summary, "tokens_per_step") / std::max(step, 1e-9) * 1e3)),
                 " tokens/s\n");
}

// Returns the changes from one profile to another, largest first.
std::vector<KernelChange> changes_between(const KernelTotals& before, const KernelTotals& after,
                                          const SummaryLimits& limits) {
  std::vector<KernelChange> changes;
  const auto add = [&](const KernelKey& key, const KernelTotal* was, const KernelTotal* is) {
    KernelChange change{.name = std::get<0>(key), .module = std::get<1>(key), .phase = std::get<2>(key)};
    if (was != nullptr) change.before = was->ms;
    if (is != nullptr) change.after = is->ms;
    if (was == nullptr) {
      change.reason = text_of("only in B: ", digits(is->runs), " calls");
    } else if (is == nullptr) {
      change.reason = text_of("only in A: ", digits(was->runs), " calls");
    } else {
      explain(*was, *is, is_limited_by_flops(*was, limits), change);
    }
    changes.push_back(std::move(change));
  };
  for (const auto& [key, was] : before) {
    const auto found = after.find(key);
    add(key, &was, found == after.end() ? nullptr : &found->second);
  }
  for (const auto& [key, is] : after) {
    if (!before.contains(key)) add(key, nullptr, &is);
  }
  std::ranges::stable_sort(changes, [](const KernelChange& x, const KernelChange& y) {
    return std::abs(x.change()) > std::abs(y.change());
  });
  return changes;
}

}  // namespace

std::vector<KernelChange> profile_changes(const Json& a, const Json& b) {
  KernelTotals before = kernel_totals(a);
  KernelTotals after = kernel_totals(b);
  const double between_a = summary_number(a, "between_ms");
  const double between_b = summary_number(b, "between_ms");
  if (between_a > 0 || between_b > 0) {
    const KernelKey key{"time between operations", "", ""};
    if (a.contains("between_ms")) before[key] = {.ms = between_a, .runs = 1};
    if (b.contains("between_ms")) after[key] = {.ms = between_b, .runs = 1};
  }
  return changes_between(before, after, summary_limits(a));
}

std::vector<KernelChange> reward_changes(const Json& a, const Json& b) {
  return changes_between(reward_totals(a), reward_totals(b), {});
}

std::string comparison_text(const Json& a, const Json& b, std::size_t most) {
  std::string text = step_line("A", a) + step_line("B", b);
  if (summary_word(a, "machine") != summary_word(b, "machine")) text += "The machines differ, so rates do.\n";
  const std::vector<KernelChange> changes = profile_changes(a, b);
  double all = 0;
  for (const KernelChange& change : changes) all += change.change();
  const auto append = [&]<class... Values>(const char* pattern, Values... values) {
    text += printed(pattern, values...);
  };
  append("\nms of a profiled step; a change is the sum of its parts: calls, work of a call, rate\n");
  append("%-26s %-22s %-8s %9s %9s %9s %8s %8s %8s  %s\n", "operation", "module", "phase", "A", "B", "change", "calls",
         "work", "rate", "why");
  constexpr double kLeastShown = 0.0005;  // ms
  std::size_t shown = 0;
  for (const KernelChange& each : changes) {
    if (shown == most || std::abs(each.change()) < kLeastShown) break;
    ++shown;
    append("%-26s %-22s %-8s %9.3f %9.3f %+9.3f %+8.3f %+8.3f %+8.3f  ", each.name.c_str(), each.module.c_str(),
           each.phase.c_str(), each.before, each.after, each.change(), each.calls, each.work, each.rate);
    text += each.reason + "\n";
  }
  if (changes.size() > shown) append("%zu smaller changes are not shown\n", changes.size() - shown);
  append("%-58s %9.3f %9.3f %+9.3f\n", "all", summary_number(a, "step_ms"), summary_number(b, "step_ms"), all);
  const std::vector<KernelChange> rewards = reward_changes(a, b);
  if (rewards.empty()) return text;
  append("\n%-58s %9s %9s %9s  %s\n", "ms of rewards, partly during other work", "A", "B", "change", "why");
  for (const KernelChange& each : rewards) {
    append("%-58s %9.3f %9.3f %+9.3f  ", each.name.c_str(), each.before, each.after, each.change());
    text += each.reason + "\n";
  }
  return text;
}

Json read_summary(const std::filesystem::path& path) {
  const std::filesystem::path file = is_folder(path) ? path / "kernel_summary.json" : path;
  Json summary = read_json(file);
  if (!summary.is_object() || (!summary.contains("kernels") && !summary.contains("phases"))) {
    throw Error(file.string(), "is no summary of a profile", "name the output_dir of hone profile");
  }
  return summary;
}

}  // namespace hone
