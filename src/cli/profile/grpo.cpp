#include "cli/profile/grpo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <mutex>

#include "cli/command.h"
#include "cli/profile/node_clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "rl/grpo_run.h"
#include "train/setup.h"

namespace hone {
namespace {

constexpr double kRewardShare = 0.05;  // of a step, waiting for scores

// Times each reward while a run calls it, from any thread. Must outlive the run.
class RewardClock {
 public:
  RewardClock(std::span<Reward> rewards, std::int64_t warmup) : times_(rewards.size()) {
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      times_[i] = {.name = rewards[i].name, .scope = rewards[i].scope};
      rewards[i].score = [this, i, warmup, score = rewards[i].score](std::span<const RewardInput> inputs) {
        const double begin = host_seconds();
        RewardScores scores = score(inputs);
        if (!inputs.empty() && inputs[0].progress.step >= warmup) add(i, host_seconds() - begin, inputs.size());
        return scores;
      };
    }
  }

  [[nodiscard]] std::vector<RewardTime> per_step(std::int64_t steps) const {
    std::vector<RewardTime> all = times_;
    for (RewardTime& each : all) {
      each.seconds /= static_cast<double>(steps);
      each.completions /= static_cast<double>(steps);
    }
    std::ranges::stable_sort(all, [](const RewardTime& a, const RewardTime& b) { return a.seconds > b.seconds; });
    return all;
  }

 private:
  void add(std::size_t reward, double seconds, std::size_t completions) {
    const std::lock_guard lock(mutex_);
    times_[reward].seconds += seconds;
    times_[reward].completions += static_cast<double>(completions);
  }

  std::mutex mutex_;
  std::vector<RewardTime> times_;  // [rewards], sums
};

// Sets what the profile decides: how many steps, and that they leave nothing behind.
void limit_run(GrpoOptions& options, const std::string& folder, std::int64_t steps) {
  options.max_steps = steps;
  options.output_dir = folder;
  options.overwrite_output_dir = true;
  options.resume_from_checkpoint.clear();
  options.logging_strategy = Interval::kSteps;
  options.logging_steps = 1;
  options.eval_strategy = Interval::kNo;
  options.eval_on_start = options.do_eval = false;
  options.save_strategy = SaveStrategy::kNo;
  options.load_best_model_at_end = false;
  options.report_to = {"none"};
  options.benchmarks.clear();
  options.hub = {};
  options.dry_run = false;
}

// Returns the means over the rows of metrics.jsonl after the warm-up.
GrpoTimes mean_times(const std::string& metrics, std::int64_t warmup, std::int64_t steps) {
  GrpoTimes times;
  double before = 0;
  double tokens = 0;
  for (const std::string& line : split(metrics, '\n')) {
    if (line.empty()) continue;
    const Json row = parse_json(line, "metrics.jsonl");
    if (!row.contains("step_time/generation")) continue;
    tokens = row["num_tokens"].get<double>();
    if (row["step"].get<std::int64_t>() <= warmup) {
      before = tokens;
      continue;
    }
    times.rate.seconds += row["step_time"].get<double>();
    for (const GrpoPhase& phase : kGrpoPhases) times.*phase.seconds += row[phase.metric].get<double>();
  }
  times.rate.tokens = (tokens - before) / static_cast<double>(steps);
  times.rate.seconds /= static_cast<double>(steps);
  for (const GrpoPhase& phase : kGrpoPhases) times.*phase.seconds /= static_cast<double>(steps);
  return times;
}

// Phases of a step in seconds, in the order in which they run.
std::vector<std::pair<const char*, double>> phases_of(const GrpoTimes& times) {
  std::vector<std::pair<const char*, double>> phases;
  phases.reserve(std::size(kGrpoPhases) + 1);
  for (const GrpoPhase& phase : kGrpoPhases) phases.emplace_back(phase.name, times.*phase.seconds);
  phases.emplace_back("update and other", times.other());
  return phases;
}

// Runs the steps of a recipe with changed settings, in a temporary folder.
GrpoTimes grpo_times(const RecipeSource& source, const Settings& changes, std::int64_t warmup, std::int64_t steps) {
  GrpoOptions options;
  const OptionInput input = read_recipe(source, changes, OptionTable(options), options);
  const TemporaryFolder folder(source.profile.output_dir, "grpo");
  limit_run(options, folder.path().string(), warmup + steps);
  check_options(options, input);
  GrpoRun run = prepare_grpo(options, input);
  RewardClock clock(run.rewards, warmup);
  (void)train(run);
  GrpoTimes times = mean_times(read_file(folder.path() / "metrics.jsonl"), warmup, steps);
  times.each = clock.per_step(steps);
  return times;
}

}  // namespace

double GrpoTimes::other() const {
  double rest = rate.seconds;
  for (const GrpoPhase& phase : kGrpoPhases) rest -= this->*phase.seconds;
  return std::max(rest, 0.0);
}

std::vector<Advice> reward_advice(const GrpoTimes& times) {
  std::vector<Advice> list;
  const double step = times.rate.seconds;
  if (times.rewards <= kRewardShare * step) return list;
  // Rewards of whole batches run one after the other when all completions are there, so that each adds its time to the
  // step. The others have begun before; what is left of them is waited for.
  double left = times.rewards;
  for (const RewardTime& each : times.each) {
    const double waited = std::min(each.seconds, left);
    left -= waited;
    if (waited <= kRewardShare * step) continue;
    const bool is_batch = each.scope == RewardScope::kBatch;
    list.push_back(
        {.text = text_of("reward_funcs: ", each.name, " takes ", std::round(each.seconds * 1e3), " ms a step (",
                         std::round(each.completions), " completions), and the step waits ", std::round(waited * 1e3),
                         " ms of ", std::round(step * 1e3),
                         " for it; without it or if it were as fast as can be, the step would take ",
                         std::round((step - waited) * 1e3), " ms.",
                         is_batch ? " It judges all completions together, after the last is generated." : ""),
         .settings = {},
         .gain = step / (step - waited),
         .rate = {.seconds = step - waited, .tokens = times.rate.tokens},
         .key = "reward_funcs"});
  }
  return list;
}

std::string to_text(const GrpoTimes& times) {
  std::string text = text_of("a step: ", std::round(times.rate.seconds * 1e4) / 10, " ms, ",
                             format_count(std::llround(times.rate.tokens_per_second())), " tokens/s\n\n");
  std::array<char, 120> line{};
  const auto add = [&](const std::string& name, double seconds, const std::string& more) {
    std::snprintf(line.data(), line.size(), "%-40s %10.1f %6.1f%%  %s\n", name.c_str(), seconds * 1e3,
                  100 * seconds / times.rate.seconds, more.c_str());
    text += line.data();
  };
  std::snprintf(line.data(), line.size(), "%-40s %10s %7s\n", "phase", "ms", "share");
  text += line.data();
  for (const auto& [name, seconds] : phases_of(times)) add(name, seconds, "");
  std::snprintf(line.data(), line.size(), "\n%-40s %10s %7s\n", "reward", "ms", "of step");
  text += line.data();
  for (const RewardTime& each : times.each) {
    add(each.name, each.seconds,
        each.scope == RewardScope::kBatch ? "after generation" : "while completions are generated, and after");
  }
  return text;
}

Json to_json(const GrpoTimes& times) {
  Json list = Json::array();
  for (const auto& [name, seconds] : phases_of(times)) {
    list.push_back({{"name", name}, {"ms", seconds * 1e3}, {"share", seconds / times.rate.seconds}});
  }
  Json rewards = Json::array();
  for (const RewardTime& each : times.each) {
    rewards.push_back({{"name", each.name},
                       {"ms", each.seconds * 1e3},
                       {"completions", each.completions},
                       {"waits_for_all", each.scope == RewardScope::kBatch}});
  }
  return {{"step_ms", times.rate.seconds * 1e3},
          {"tokens_per_step", times.rate.tokens},
          {"phases", std::move(list)},
          {"rewards", std::move(rewards)}};
}

int profile_grpo(const RecipeSource& source) {
  const ProfileOptions& profile = source.profile;
  if (source.flags.was_set("counters")) {
    throw Error(source.flags.place_of("counters"), "has no effect with grpo, whose operations are not counted",
                "remove it");
  }
  GrpoOptions options;
  (void)read_recipe(source, {}, OptionTable(options), options);
  const Device& device = open_device(options.device);
  const GrpoTimes times = grpo_times(source, {}, profile.warmup_steps, profile.num_steps);
  MeasureRate measure;
  if (profile.trial_steps > 0) {
    measure = [&](const Settings& changes) { return grpo_times(source, changes, 1, profile.trial_steps).rate; };
  }
  const StepSettings settings{.of_recipe = true,
                              .recomputes = options.gradient_checkpointing == Recomputation::kOn,
                              .offloads = options.activation_offloading,
                              .tuned = options.gemm.tune_gemm,
                              .gpu = device.kind() != DeviceKind::kCpu,
                              .dtype = weight_dtype(options).value_or(DType::kBf16)};
  const std::vector<Proposal> proposed = program_proposals(settings);
  const StepRate before = measure && !proposed.empty() ? measure({}) : times.rate;
  const std::vector<TriedProposal> tried = try_all(proposed, measure);
  std::vector<Advice> list = reward_advice(times);
  for (Advice& each : tried_advice(before, tried)) list.push_back(std::move(each));
  std::ranges::stable_sort(list, [](const Advice& a, const Advice& b) { return a.gain > b.gain; });
  if (list.empty()) list.push_back({.text = "Nothing stands out.", .settings = {}});

  Json summary = {{"what", "grpo"}, {"machine", device.name()}, {"num_steps", profile.num_steps}};
  summary.update(to_json(times));
  summary["advice"] = to_json(list);
  summary["trial_baseline"] = to_json(before);
  summary["trials"] = to_json(before, tried);
  write_json(std::filesystem::path(profile.output_dir) / "kernel_summary.json", summary);
  std::printf("grpo on %s, %lld steps\n%s\n", device.name().c_str(), static_cast<long long>(profile.num_steps),
              to_text(times).c_str());
  for (const Advice& each : list) std::printf("- %s\n", each.text.c_str());
  std::fputs(other_trials_text(before, tried).c_str(), stdout);
  std::printf("\nkernel_summary.json is in %s\n", profile.output_dir.c_str());
  return 0;
}

}  // namespace hone
