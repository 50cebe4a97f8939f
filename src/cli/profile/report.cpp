#include "cli/profile/report.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/printed.h"

namespace hone {
namespace {

constexpr double kCandidateShare = 0.02;  // of a step

bool is_product(const KernelSummary& kernel) { return kernel.category == name_of(OpCategory::kGemm); }

void add_share(std::vector<ShareOfStep>& shares, const std::string& name, double seconds, double floor) {
  const auto found = std::ranges::find(shares, name, &ShareOfStep::name);
  ShareOfStep& share = found != shares.end() ? *found : shares.emplace_back(ShareOfStep{.name = name});
  share.seconds += seconds;
  share.floor += floor;
}

std::string share_lines(std::string_view title, const std::vector<ShareOfStep>& shares, double step) {
  std::string text = printed("%-34s %10s %7s %12s\n", std::string(title).c_str(), "ms", "share", "of roofline");
  for (const ShareOfStep& share : shares) {
    text += printed("%-34s %10.3f %6.1f%% %11.1f%%\n", share.name.c_str(), share.seconds * 1e3,
                    100 * share.seconds / step, share.seconds > 0 ? 100 * share.floor / share.seconds : 0);
  }
  return text + "\n";
}

Json share_json(const std::vector<ShareOfStep>& shares, double step) {
  Json list = Json::array();
  for (const ShareOfStep& share : shares) {
    list.push_back({{"name", share.name},
                    {"ms", share.seconds * 1e3},
                    {"share", share.seconds / step},
                    {"floor_ms", share.floor * 1e3}});
  }
  return list;
}

Json kernel_json(const KernelSummary& kernel, double step) {
  return {{"op", kernel.op},
          {"category", kernel.category},
          {"module", kernel.module},
          {"phase", kernel.phase},
          {"shapes", kernel.shapes},
          {"runs", kernel.runs},
          {"ms", kernel.seconds * 1e3},
          {"share", kernel.seconds / step},
          {"flops", kernel.flops},
          {"bytes", kernel.bytes},
          {"tflops", kernel.flops / kernel.seconds * 1e-12},
          {"gbps", kernel.bytes / kernel.seconds * 1e-9},
          {"floor_ms", kernel.floor * 1e3},
          {"of_possible", kernel.achieved()}};
}

}  // namespace

double ProfileReport::host_seconds() const {
  const double inside = step_seconds - between_seconds;
  return std::max(unprofiled_step_seconds > 0 ? unprofiled_step_seconds - inside : between_seconds, 0.0);
}

std::vector<const KernelSummary*> candidates(const ProfileReport& report) {
  std::vector<const KernelSummary*> found;
  for (const KernelSummary& kernel : report.kernels) {
    if (!is_product(kernel) && kernel.seconds > kCandidateShare * report.step_seconds) found.push_back(&kernel);
  }
  return found;
}

ProfileReport make_report(const Timeline& timeline, const DeviceLimits& limits) {
  HONE_ASSERT(!timeline.steps.empty(), "a timeline without steps");
  ProfileReport report{.limits = limits};
  const auto steps = static_cast<double>(timeline.steps.size());
  for (const ProfiledStep& step : timeline.steps) report.step_seconds += step.seconds / steps;

  using Key = std::tuple<std::string, std::string, Phase, std::string>;
  std::map<Key, KernelSummary> kernels;
  double inside = 0;
  for (const ProfiledRun& run : timeline.runs) {
    const ProfiledNode& node = timeline.nodes[run.node];
    const std::string module = module_of(node);
    KernelSummary& kernel = kernels[{node.op, module, node.phase, node.shapes}];
    kernel.op = node.op;
    kernel.category = node.category;
    kernel.module = module;
    kernel.phase = name_of(node.phase);
    kernel.shapes = node.shapes;
    kernel.runs += 1 / steps;
    kernel.seconds += run.seconds / steps;
    kernel.flops += node.flops / steps;
    kernel.bytes += node.bytes / steps;
    kernel.floor += limits.floor(node.flops, node.bytes) / steps;
    inside += run.seconds / steps;
  }
  report.between_seconds = std::max(report.step_seconds - inside, 0.0);
  for (auto& [key, kernel] : kernels) {
    kernel.floor = std::min(kernel.floor, kernel.seconds);
    add_share(report.categories, std::string(kernel.category), kernel.seconds, kernel.floor);
    add_share(report.modules, kernel.module, kernel.seconds, kernel.floor);
    report.kernels.push_back(std::move(kernel));
  }
  add_share(report.categories, "other", report.step_seconds - inside, 0);
  const auto slower = [](const auto& a, const auto& b) { return a.seconds > b.seconds; };
  std::ranges::stable_sort(report.kernels, slower);
  std::ranges::stable_sort(report.categories, slower);
  std::ranges::stable_sort(report.modules, slower);
  return report;
}

std::string to_text(const ProfileReport& report, std::size_t most) {
  const FlopUnit unit = flop_unit(report.limits.flops_per_second);
  std::string text = printed("a step: %.3f ms in operations, %.3f ms between",
                             report.step_seconds * 1e3 - report.between_seconds * 1e3, report.between_seconds * 1e3);
  if (report.unprofiled_step_seconds > 0)
    text += printed("; %.3f ms without the profiler", report.unprofiled_step_seconds * 1e3);
  if (report.data_seconds > 0) text += printed("; %.3f ms more to read its batches", report.data_seconds * 1e3);
  text += printed("\nmeasured limits: copy %.0f GB/s, GEMM %.1f %s\n\n", report.limits.copy_bytes_per_second * 1e-9,
                  report.limits.flops_per_second / unit.scale, unit.name);
  text += printed("%-28s %-24s %-8s %7s %10s %7s %9s %7s %12s\n", "operation", "module", "phase", "runs", "ms", "share",
                  unit.name, "GB/s", "of roofline");
  for (std::size_t i = 0; i < std::min(most, report.kernels.size()); ++i) {
    const KernelSummary& kernel = report.kernels[i];
    text += printed("%-28s %-24s %-8s %7.0f %10.3f %6.1f%% %9.1f %7.0f %11.1f%%\n", kernel.op.c_str(),
                    kernel.module.c_str(), std::string(kernel.phase).c_str(), kernel.runs, kernel.seconds * 1e3,
                    100 * kernel.seconds / report.step_seconds, kernel.flops / kernel.seconds / unit.scale,
                    kernel.bytes / kernel.seconds * 1e-9, 100 * kernel.achieved());
  }
  text += "\n" + share_lines("category", report.categories, report.step_seconds) +
          share_lines("module", report.modules, report.step_seconds);
  const std::vector<const KernelSummary*> found = candidates(report);
  if (found.empty()) return text + "no operation except GEMMs takes more than 2% of the step\n";
  text += "operations other than GEMMs that take more than 2% of the step:\n";
  for (const KernelSummary* kernel : found) {
    text += printed("  %-28s %-24s %5.1f%%, at %.0f%% of the roofline\n", kernel->op.c_str(), kernel->module.c_str(),
                    100 * kernel->seconds / report.step_seconds, 100 * kernel->achieved());
  }
  return text;
}

Json to_json(const ProfileReport& report) {
  Json kernels = Json::array();
  for (const KernelSummary& kernel : report.kernels) kernels.push_back(kernel_json(kernel, report.step_seconds));
  Json above = Json::array();
  for (const KernelSummary* kernel : candidates(report)) above.push_back(kernel_json(*kernel, report.step_seconds));
  return {{"step_ms", report.step_seconds * 1e3},
          {"unprofiled_step_ms", report.unprofiled_step_seconds * 1e3},
          {"between_ms", report.between_seconds * 1e3},
          {"data_ms", report.data_seconds * 1e3},
          {"start_ms", report.start_seconds * 1e3},
          {"tokens_per_step", report.tokens_per_step},
          {"limits",
           {{"copy_gbps", report.limits.copy_bytes_per_second * 1e-9},
            {"product_tflops", report.limits.flops_per_second * 1e-12}}},
          {"categories", share_json(report.categories, report.step_seconds)},
          {"modules", share_json(report.modules, report.step_seconds)},
          {"candidates", std::move(above)},
          {"kernels", std::move(kernels)}};
}

}  // namespace hone
