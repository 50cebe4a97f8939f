#include "planner/layout_search.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "core/log.h"
#include "core/printed.h"
#include "core/strings.h"
#include "planner/model_flops.h"

namespace hone {
namespace {

// Estimates are this far off at most, as a share. Where layers are recomputed, attention's results are kept as far as
// they fit; few layers keep all of them.
constexpr double kMemoryError = 0.08;
constexpr double kRecomputedMemoryError = 0.3;
constexpr double kTimeError = 0.05;
// Stages are estimated as if layers and head were divided evenly, which few plans are faster than.
constexpr double kStageTimeError = 0.02;

auto order_of(const LayoutPlan& plan) { return std::tuple(plan.time.total(), plan.layout); }
void sort_by_time(std::vector<LayoutPlan>& plans) {
  std::ranges::sort(plans, {}, [](const LayoutPlan& plan) { return order_of(plan); });
}

// The least time that the plan of an estimated layout may have.
double least_time(const LayoutPlan& estimated) {
  const bool has_stages = estimated.layout.pipeline_parallel_size > 1;
  return estimated.time.total() * (1 - (has_stages ? kStageTimeError : kTimeError));
}

// Estimates of layouts, one after the other, of which those that may fit are kept.
class Estimates {
 public:
  explicit Estimates(const LayoutProblem& problem) : problem_(problem), estimator_(problem) {}

  void add(const Layout& layout) {
    if (problem_.recomputation_set) return add_one(layout, layout.gradient_checkpointing);
    const std::optional<LayoutPlan> all = estimate(layout, Recomputation::kOff);
    if (!all) return;
    ++allowed;
    const auto room = static_cast<double>(problem_.available);
    const auto bytes = static_cast<double>(all->bytes);
    if (bytes * (1 - kMemoryError) <= room) plans.push_back(*all);
    if (bytes * (1 + kMemoryError) <= room) return;
    std::optional<LayoutPlan> some = estimate(layout, Recomputation::kOn);
    if (!some || static_cast<double>(some->bytes) * (1 - kRecomputedMemoryError) > room) {
      too_large += plans.empty() || plans.back().layout != all->layout ? 1 : 0;
      note_least(some ? *some : *all);
      return;
    }
    // auto recomputes the share that does not fit.
    const double saved = bytes - static_cast<double>(some->bytes);
    const double share = saved > 0 ? std::clamp((bytes - room) / saved, 0.0, 1.0) : 1.0;
    StepTime more = some->time;
    more.add(all->time, -1);
    some->time = all->time;
    some->time.add(more, share);
    some->layout.gradient_checkpointing = Recomputation::kAutomatic;
    plans.push_back(*some);
  }

  void note_least(const LayoutPlan& plan) {
    if (!least || plan.bytes < least->bytes) least = plan;
  }

  std::vector<LayoutPlan> plans;
  std::size_t allowed = 0;
  std::size_t too_large = 0;
  std::optional<LayoutPlan> least;  // of those that do not fit, that with the least memory
  std::exception_ptr refusal;       // of the first layout that the model or an option refuses

 private:
  // Estimates a layout with one choice of recomputation; nullopt if the model or an option refuses it.
  std::optional<LayoutPlan> estimate(Layout layout, Recomputation recomputation) {
    layout.gradient_checkpointing = recomputation;
    try {
      TrainingOptions options = problem_.options;
      apply(layout, options);
      if (problem_.check) problem_.check(options);
      return estimator_.estimate(layout);
    } catch (const Error&) {
      if (refusal == nullptr) refusal = std::current_exception();
      return std::nullopt;
    }
  }

  void add_one(const Layout& layout, Recomputation recomputation) {
    const std::optional<LayoutPlan> plan = estimate(layout, recomputation);
    if (!plan) return;
    ++allowed;
    const bool all = recomputation == Recomputation::kOff;
    const double bytes = static_cast<double>(plan->bytes) * (1 - (all ? kMemoryError : kRecomputedMemoryError));
    if (bytes <= static_cast<double>(problem_.available) || recomputation == Recomputation::kAutomatic) {
      plans.push_back(*plan);
    } else {
      ++too_large;
      note_least(*plan);
    }
  }

  const LayoutProblem& problem_;
  LayoutEstimator estimator_;
};

[[noreturn]] void refuse(const LayoutProblem& problem, const Estimates& estimates) {
  // A reason that holds for every layout is reported as a run reports it.
  if (estimates.allowed == 0 && estimates.refusal != nullptr) std::rethrow_exception(estimates.refusal);
  if (estimates.allowed == 0) {
    const std::string resumed =
        problem.batch_size ? text_of(" with the checkpoint's per_device_train_batch_size ", *problem.batch_size) : "";
    throw Error("layout", text_of("the model and the keys allow no layout of ", problem.options.processes(),
                                  " processes", resumed));
  }
  const std::string least = estimates.least ? text_of("; the smallest, ", to_text(estimates.least->layout),
                                                      ", takes about ", format_bytes(estimates.least->bytes))
                                            : "";
  throw Error("layout",
              text_of("none of the ", estimates.allowed, " layouts of ", problem.options.processes(),
                      " processes fits ", format_bytes(problem.available), " a device", least),
              "use more processes, or --optim adamw_8bit --gradient_dtype bfloat16");
}

double flops_per_token(const LayoutProblem& problem) {
  return model_flops_per_token(*problem.model(problem.layers), static_cast<double>(problem.sequence.tokens));
}

// Returns "58.5%", or "-" if the device's peak is unknown. flops: of the model, per second.
std::string mfu_text(const LayoutProblem& problem, double flops) {
  const double peak = problem.device.peak_flops.per_second;
  return peak > 0 ? printed("%.1f%%", 100 * flops / peak) : "-";
}

}  // namespace

LayoutRanking rank_layouts(const LayoutProblem& problem, std::size_t count) {
  const QuietScope quiet;  // about models that are only tried
  Estimates estimates(problem);
  for (const Layout& layout :
       possible_layouts(problem.options, problem.unit, problem.sequence.tokens, problem.batch_size))
    estimates.add(layout);
  std::ranges::sort(estimates.plans, {},
                    [](const LayoutPlan& plan) { return std::tuple(least_time(plan), plan.layout); });
  LayoutRanking ranking{.layouts = {}, .allowed = estimates.allowed, .too_large = estimates.too_large};
  std::map<Layout, std::ptrdiff_t> failures;  // plans that do not fit, of layouts that are alike but for recomputation
  for (const LayoutPlan& likely : estimates.plans) {
    if (count > 0 && ranking.layouts.size() >= count) {
      if (least_time(likely) > ranking.layouts[count - 1].time.total()) break;
    }
    const auto is_alike = [&](const LayoutPlan& other) {
      Layout same = other.layout;
      same.gradient_checkpointing = likely.layout.gradient_checkpointing;
      return same == likely.layout;
    };
    // A layout that fits without recomputation needs none.
    if (std::ranges::any_of(ranking.layouts, is_alike)) continue;
    LayoutPlan plan = plan_layout(problem, likely.layout);
    if (plan.bytes > problem.available) {
      // Too large if it is with every choice of recomputation that may fit.
      Layout layout = likely.layout;
      layout.gradient_checkpointing = Recomputation::kAutomatic;
      if (++failures[layout] == std::ranges::count_if(estimates.plans, is_alike)) ++ranking.too_large;
      estimates.note_least(plan);
      continue;
    }
    ranking.layouts.push_back(plan);
    sort_by_time(ranking.layouts);
  }
  if (ranking.layouts.empty()) refuse(problem, estimates);
  if (count > 0 && ranking.layouts.size() > count) ranking.layouts.resize(count);
  return ranking;
}

double tokens_per_second(const LayoutProblem& problem, const LayoutPlan& plan) {
  TrainingOptions options = problem.options;
  apply(plan.layout, options);
  const std::int64_t sequences = options.per_device_train_batch_size * options.batches_per_step();
  return static_cast<double>(sequences * problem.sequence.tokens) / static_cast<double>(options.processes()) /
         plan.time.total();
}

std::string reason_of(const StepTime& time) {
  std::vector<std::pair<double, const char*>> parts{{time.products, "GEMMs"},
                                                    {time.attention, "attention"},
                                                    {time.kernels, "other kernels"},
                                                    {time.update, "update"},
                                                    {time.exposed, "collectives waited for"},
                                                    {time.slowed, "collectives next to GEMMs"},
                                                    {time.bubble, "waits of stages"}};
  std::ranges::stable_sort(parts, std::greater<>(), [](const auto& part) { return part.first; });
  std::vector<std::string> shares;
  for (const auto& [seconds, name] : parts) {
    const double percent = 100 * seconds / time.total();
    if (percent >= 1) shares.push_back(printed("%s %.0f%%", name, percent));
  }
  return join(shares, ", ");
}

std::string to_text(const LayoutRanking& ranking, const LayoutProblem& problem) {
  const TrainingOptions& options = problem.options;
  const std::int64_t sequences =
      options.per_device_train_batch_size * options.gradient_accumulation_steps * options.processes();
  std::string text =
      text_of("layouts of ", options.processes(), " processes on ", problem.device.name, " (",
              format_bytes(problem.available), " available each), ", format_count(sequences), " sequences of ",
              format_count(problem.sequence.tokens), " tokens a step: ", ranking.allowed, " allowed, ",
              ranking.too_large, ranking.too_large == 1 ? " does not fit\n" : " do not fit\n");
  const double flops = flops_per_token(problem);
  std::size_t width = 6;
  for (const LayoutPlan& plan : ranking.layouts) width = std::max(width, to_text(plan.layout).size());
  const auto column = static_cast<int>(width);
  text += printed("  #  %-*s  %11s  %9s  %16s  %5s  ", column, "layout", "memory", "step", "tokens/s a device", "MFU");
  text += "time\n";
  for (std::size_t i = 0; i < ranking.layouts.size(); ++i) {
    const LayoutPlan& plan = ranking.layouts[i];
    const double rate = tokens_per_second(problem, plan);
    const std::string mfu = mfu_text(problem, rate * flops);
    text += printed("%3zu  %-*s  %11s  %6.0f ms  %16.0f  %6s  ", i + 1, column, to_text(plan.layout).c_str(),
                    format_bytes(plan.bytes).c_str(), plan.time.total() * 1e3, rate, mfu.c_str());
    text += reason_of(plan.time) + "\n";
  }
  return text + "the first: " + flags_of(ranking.layouts[0].layout) + "\n";
}

std::string step_text(const LayoutProblem& problem, const LayoutPlan& plan) {
  const double rate = tokens_per_second(problem, plan);
  return printed("a step on %s: %.0f ms, %.0f tokens/s a device, MFU %s: ", problem.device.name.c_str(),
                 plan.time.total() * 1e3, rate, mfu_text(problem, rate * flops_per_token(problem)).c_str()) +
         reason_of(plan.time) + "\n";
}

}  // namespace hone
