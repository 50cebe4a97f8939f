#include "cli/profile/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

// Thresholds of the advice, as fractions. A kernel other than a GEMM that takes more than kCandidateShare of a step is
// a candidate for fusion or for a faster kernel.
constexpr double kCandidateShare = 0.02;
constexpr double kGoodShare = 0.85;    // of the roofline: a kernel that reaches this is good enough
constexpr double kHostShare = 0.05;    // of the step, between operations
constexpr double kUpdateShare = 0.08;  // of the step, in the optimizer
constexpr double kWorthwhile = 0.005;  // of the step, least saving worth reporting

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[512];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

bool is_product(const KernelSummary& kernel) { return kernel.category == name_of(OpCategory::kGemm); }

// Returns the candidates of a report, slowest first.
std::vector<const KernelSummary*> candidates(const ProfileReport& report) {
  std::vector<const KernelSummary*> found;
  for (const KernelSummary& kernel : report.kernels) {
    if (!is_product(kernel) && kernel.seconds > kCandidateShare * report.step_seconds) found.push_back(&kernel);
  }
  return found;
}

void add_share(std::vector<ShareOfStep>& shares, const std::string& name, double seconds, double floor) {
  const auto found = std::ranges::find(shares, name, &ShareOfStep::name);
  ShareOfStep& share = found != shares.end() ? *found : shares.emplace_back(ShareOfStep{.name = name});
  share.seconds += seconds;
  share.floor += floor;
}

std::string share_lines(std::string_view title, const std::vector<ShareOfStep>& shares, double step) {
  std::string text = format("%-34s %10s %7s %12s\n", std::string(title).c_str(), "ms", "share", "of roofline");
  for (const ShareOfStep& share : shares) {
    text += format("%-34s %10.3f %6.1f%% %11.1f%%\n", share.name.c_str(), share.seconds * 1e3,
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
          {"tflops", kernel.flops / kernel.seconds * 1e-12},
          {"gbps", kernel.bytes / kernel.seconds * 1e-9},
          {"floor_ms", kernel.floor * 1e3},
          {"of_possible", kernel.achieved()}};
}

}  // namespace

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
    const std::string module = node.phase == Phase::kUpdate ? "update" : module_of_scope(node.scope);
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

std::vector<std::string> advice(const ProfileReport& report, const AdviceContext& context) {
  std::vector<std::string> sentences;
  const double step = report.step_seconds;
  const auto share_of = [&](std::string_view name) {
    const auto found = std::ranges::find(report.categories, name, &ShareOfStep::name);
    return found == report.categories.end() ? ShareOfStep{} : *found;
  };
  if (report.between_seconds > kHostShare * step) {
    sentences.push_back(
        format("%.1f%% of the step is spent between operations, because they are too short for the device; a larger "
               "%s makes them longer.",
               100 * report.between_seconds / step, std::string(context.batch_key).c_str()));
  }
  const ShareOfStep products = share_of("GEMM");
  if (context.gpu && !context.tuned && products.seconds > 0.2 * step) {
    sentences.push_back(
        format("GEMMs take %.1f%% of the step at %.0f%% of the roofline; --tune_gemm tries their algorithms once and "
               "keeps the fastest.",
               100 * products.seconds / step, 100 * products.floor / products.seconds));
  }
  for (const KernelSummary* kernel : candidates(report)) {
    const double won = kernel->seconds - kernel->floor / kGoodShare;
    if (kernel->achieved() >= kGoodShare || won < kWorthwhile * step) continue;
    sentences.push_back(
        format("%s (%s, %s) takes %.1f%% of the step at %.0f%% of the roofline; a faster kernel or fusing it with a "
               "neighbour could save %.1f%% of the step.",
               kernel->op.c_str(), kernel->module.c_str(), std::string(kernel->phase).c_str(),
               100 * kernel->seconds / step, 100 * kernel->achieved(), 100 * won / step));
  }
  const ShareOfStep optimizer = share_of("optimizer");
  if (optimizer.seconds > kUpdateShare * step) {
    sentences.push_back(
        format("The optimizer takes %.1f%% of the step; gradient_accumulation_steps above %lld spreads it "
               "over more tokens%s.",
               100 * optimizer.seconds / step, static_cast<long long>(context.gradient_accumulation_steps),
               context.can_shrink_states ? "; optim adamw_bf16 moves fewer bytes" : ""));
  }
  if (sentences.empty()) sentences.emplace_back("Nothing stands out: every large operation is close to the roofline.");
  return sentences;
}

std::string to_text(const ProfileReport& report, std::size_t most) {
  const FlopUnit unit = flop_unit(report.limits.flops_per_second);
  std::string text = format("a step: %.3f ms in operations, %.3f ms between",
                            report.step_seconds * 1e3 - report.between_seconds * 1e3, report.between_seconds * 1e3);
  if (report.unprofiled_step_seconds > 0)
    text += format("; %.3f ms without the profiler", report.unprofiled_step_seconds * 1e3);
  text += format("\nmeasured limits: copy %.0f GB/s, GEMM %.1f %s\n\n", report.limits.copy_bytes_per_second * 1e-9,
                 report.limits.flops_per_second / unit.scale, unit.name);
  text += format("%-28s %-24s %-8s %7s %10s %7s %9s %7s %12s\n", "operation", "module", "phase", "runs", "ms", "share",
                 unit.name, "GB/s", "of roofline");
  for (std::size_t i = 0; i < std::min(most, report.kernels.size()); ++i) {
    const KernelSummary& kernel = report.kernels[i];
    text += format("%-28s %-24s %-8s %7.0f %10.3f %6.1f%% %9.1f %7.0f %11.1f%%\n", kernel.op.c_str(),
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
    text += format("  %-28s %-24s %5.1f%%, at %.0f%% of the roofline\n", kernel->op.c_str(), kernel->module.c_str(),
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
          {"limits",
           {{"copy_gbps", report.limits.copy_bytes_per_second * 1e-9},
            {"product_tflops", report.limits.flops_per_second * 1e-12}}},
          {"categories", share_json(report.categories, report.step_seconds)},
          {"modules", share_json(report.modules, report.step_seconds)},
          {"candidates", std::move(above)},
          {"kernels", std::move(kernels)}};
}

}  // namespace hone
