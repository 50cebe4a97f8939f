// hone profile: profiles training steps, reports where their time goes and what would make them faster.
#include <algorithm>
#include <cstdio>

#include "cli/profile/advice.h"
#include "cli/profile/compare.h"
#include "cli/profile/counters.h"
#include "cli/profile/grpo.h"
#include "cli/profile/launch_counters.h"
#include "cli/profile/limits.h"
#include "cli/profile/report.h"
#include "cli/profile/subject.h"
#include "cli/profile/trace.h"
#include "cli/registry.h"
#include "cli/training_kind.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"

namespace hone {

const CommandText kProfileText{
    .name = "profile",
    .summary = "Profile a training step, compare each operation with the device's roofline, and advise",
    .positionals = "[pretrain|sft|grpo] [RECIPE.yaml]",
    .details =
        "Runs training steps with random weights: of a known shape on random tokens, or of a recipe on\n"
        "its data. With a recipe, its keys replace those of the group \"Training step\" below, except\n"
        "device, tune_gemm and gemm_table. Then tries settings that may be faster, and says what each\n"
        "gained. Writes chrome_trace.json (open it in ui.perfetto.dev) and kernel_summary.json. Steps\n"
        "of grpo are run whole, on the model of the recipe, and reported by phase and by reward.",
    .recipe = RecipeArgument::kRefused};

namespace {

// The profiled steps, their speed without the profiler, and the counted events.
struct MeasuredSteps {
  Timeline timeline;
  StepRate rate;
  CounterReport counters;
};

// Counts events in separate steps, because counting takes time. On a GPU only the first micro-batch and the update are
// counted, because counters take memory for each launch.
CounterReport count_events(const Subject& subject, TrainingStep& step, std::int64_t steps) {
  if (subject.settings.gpu) {
    return count_launches(*subject.device, [&](NodeObserver& observer, const TrainingStep::ProgramDone& done) {
      step.run_observed(subject.step(0).first(1), observer, done);
    });
  }
  NodeCounters counters;
  Timeline timeline;
  std::vector<CountedRun> runs;
  for (std::int64_t i = 0; i < steps; ++i) {
    step.run_observed(subject.step(i), counters, [&](const Executable& executable, const HostBatch& batch) {
      const std::size_t first = timeline.add_program(executable, batch);
      for (std::size_t node = 0; node < counters.counts().size(); ++node) {
        if (!executable.program().nodes()[node].op->is_view()) runs.push_back({first + node, counters.counts()[node]});
      }
    });
    timeline.steps.emplace_back();
  }
  return counter_report(counters, timeline, runs);
}

MeasuredSteps measure_steps(Subject& subject, const ProfileOptions& options) {
  HONE_ASSERT(subject.workspace.has_value(), "the subject has no programs");
  TrainingStep step(*subject.model, std::move(*subject.workspace), subject.optimizer, subject.dtype, *subject.device);
  // The same steps run twice: first without the profiler, for their real duration, then with it. A GPU records each
  // program in its second run, so its warm-up reads all steps at least twice.
  const std::int64_t recorded = subject.settings.gpu ? 2 * std::ssize(subject.steps) : 0;
  MeasuredSteps measured;
  measured.rate = rate_of(subject, step, std::max(options.warmup_steps, recorded), options.num_steps);
  for (std::int64_t i = 0; i < options.num_steps; ++i) step.run_profiled(subject.step(i), measured.timeline);
  if (options.counters) measured.counters = count_events(subject, step, std::min<std::int64_t>(options.num_steps, 2));
  return measured;
}

// Returns whether the command line names a recipe of grpo.
bool is_grpo(const std::vector<std::string>& words) {
  if (words.size() == 2) return words[0] == "grpo";
  return words.size() == 1 && is_recipe(words[0]) && training_kind_of(words[0]) == "grpo";
}

int compare_profiles(const std::vector<std::string>& profiles) {
  if (profiles.size() != 2) {
    throw Error("--compare", text_of("expected two profiles, saw ", profiles.size()),
                "for example hone profile --compare runs/before runs/after");
  }
  const Json a = read_summary(profiles[0]);
  const Json b = read_summary(profiles[1]);
  std::fputs(comparison_text(a, b).c_str(), stdout);
  return 0;
}

// Returns the seconds until the data are ready at a later start with token_cache: true; 0 if it cannot be on.
double cached_start_seconds(const OpenSubject& open) {
  const Settings cached{"--token_cache", "true"};
  log_info(text_of("trying ", settings_text(cached)));
  try {
    (void)open(cached);  // fills the cache
    return open(cached).start_seconds;
  } catch (const Error&) {
    return 0;
  }
}

int profile(const ProfileOptions& options, const OptionInput& input) {
  if (!options.compare.empty()) return compare_profiles(options.compare);
  ensure_writable_folder(options.output_dir, "output_dir");
  if (is_grpo(input.positionals)) {
    return profile_grpo({.file = input.positionals.back(), .profile = options, .flags = input});
  }
  const OpenSubject open = subject_source(options, input);
  Subject subject = open({});
  const DeviceLimits limits =
      device_limits(*subject.device, subject.dtype, options.limit_seconds, input.was_set("limit_seconds"));
  const MeasuredSteps measured = measure_steps(subject, options);  // releases the memory of the steps

  ProfileReport report = make_report(measured.timeline, limits);
  report.unprofiled_step_seconds = measured.rate.seconds;
  report.data_seconds = subject.data_seconds;
  report.start_seconds = subject.start_seconds;
  report.total_steps = static_cast<double>(subject.total_steps);
  report.tokens_per_step = measured.rate.tokens;
  const MeasureRate trial = options.trial_steps > 0 ? rate_measure(open, options.trial_steps) : MeasureRate();
  if (trial && !subject.settings.caches_tokens && report.start_seconds > kSlowStart) {
    report.cached_start_seconds = cached_start_seconds(open);
  }
  const std::vector<Proposal> proposed = proposals(report, subject.settings, largest_tokens(subject));
  const StepRate before = trial && !proposed.empty() ? trial({}) : measured.rate;
  const std::vector<TriedProposal> tried = try_all(proposed, trial);
  const std::vector<Advice> list = advice(report, subject.settings, before, tried);

  const std::filesystem::path folder = options.output_dir;
  const std::string title = text_of(subject.title, " on ", subject.device->name());
  write_file(folder / "chrome_trace.json", chrome_trace(measured.timeline, title).dump() + "\n");
  Json summary = {{"what", subject.title}, {"machine", subject.device->name()}, {"num_steps", options.num_steps}};
  summary.update(to_json(report));
  if (options.counters) summary["counters"] = to_json(measured.counters);
  summary["advice"] = to_json(list);
  summary["trial_baseline"] = to_json(before);
  summary["trials"] = to_json(before, tried);
  write_json(folder / "kernel_summary.json", summary);

  std::printf("%s, %lld steps\n%s\n%s\n", title.c_str(), static_cast<long long>(options.num_steps),
              to_text(report).c_str(), to_text(measured.counters).c_str());
  for (const Advice& each : list) std::printf("- %s\n", each.text.c_str());
  std::fputs(other_trials_text(before, tried).c_str(), stdout);
  std::printf("\nchrome_trace.json (open it in ui.perfetto.dev) and kernel_summary.json are in %s\n",
              options.output_dir.c_str());
  return 0;
}

}  // namespace

void register_profile(CommandRegistry& registry) { registry.add(make_command<ProfileOptions>(kProfileText, profile)); }

}  // namespace hone
