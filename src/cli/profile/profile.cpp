// hone profile: profiles training steps and reports where their time goes.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/bench/training_step.h"
#include "cli/profile/limits.h"
#include "cli/profile/report.h"
#include "cli/profile/timeline.h"
#include "cli/registry.h"
#include "cli/training_kind.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/foreign_keys.h"
#include "train/language_run.h"
#include "train/language_task.h"
#include "train/memory_fit.h"
#include "train/setup.h"

namespace hone {
namespace {

struct ProfileOptions : StepOptions {
  std::int64_t num_steps = 5;
  std::int64_t warmup_steps = 3;
  double limit_seconds = 0.5;
  std::string output_dir = "runs/profile";

  template <class Visitor>
  void fields(Visitor& v) {
    StepOptions::fields(v);
    v.group("Profile");
    v("num_steps", num_steps, "Steps to profile", within(1, 1000));
    v("warmup_steps", warmup_steps, "Warm-up steps before them", within(2, 1000));
    v("limit_seconds", limit_seconds,
      "Seconds to measure each limit of the device; unset: use stored limits of this machine, otherwise 0.5", above(0));
    v("output_dir", output_dir, "Folder for chrome_trace.json and kernel_summary.json");
  }
};

const CommandText kProfileText{
    .name = "profile",
    .summary = "Profile a training step and compare each operation with the device's roofline",
    .positionals = "[pretrain|sft] [RECIPE.yaml]",
    .details =
        "Runs training steps with random weights: of a known shape on random tokens, or of a recipe on\n"
        "its data. With a recipe, its keys replace those of the group \"Training step\" below, except\n"
        "device, tune_gemm and gemm_table. Writes chrome_trace.json (open it in ui.perfetto.dev) and\n"
        "kernel_summary.json.",
    .recipe = RecipeArgument::kRefused};

// Model, programs and data of the profiled steps.
struct Subject {
  std::string title;
  std::unique_ptr<Model> model;
  std::optional<Workspace> workspace = std::nullopt;
  OptimizerOptions optimizer;
  DType dtype = DType::kF32;
  Device* device = nullptr;
  std::vector<std::vector<HostBatch>> steps;  // [distinct steps][micro-batches]; used in turn
  AdviceContext advice;
};

bool can_shrink_states(OptimizerType optim, DType dtype) {
  return optim == OptimizerType::kAdamw && dtype == DType::kBf16;
}

Subject of_shape(const ProfileOptions& options) {
  Subject subject;
  subject.model = open_shape(options);
  subject.title = options.model;
  subject.workspace = trace_step(options, *subject.model);
  check_step_fits(options, *subject.model, *subject.workspace);
  subject.optimizer = optimizer_options(options.training());
  subject.dtype = options.weight_dtype();
  subject.device = &open_device(options.device);
  set_gemm_tuning(*subject.device, options.gemm.tuning());
  const HostBatch batch = random_batch(options, subject.model->shape().vocab_size);
  subject.steps.emplace_back(static_cast<std::size_t>(options.gradient_accumulation_steps), batch);
  subject.advice = {.tuned = options.gemm.tune_gemm,
                    .gradient_accumulation_steps = options.gradient_accumulation_steps,
                    .batch_key = "batch_size",
                    .can_shrink_states = can_shrink_states(options.optim, subject.dtype)};
  return subject;
}

Subject run_only(LanguageRun run, const ProfileOptions& options) {
  Subject subject;
  subject.title = run_title(run.command, run.options);
  const LanguageSizes sizes = sizes_of(run);
  subject.workspace = trace_run(sizes, run.options);
  check_fits(run.options, run.dtype, open_device(run.options.device), subject.workspace->memory().total(),
             bytes_of(run));
  subject.optimizer = optimizer_options(run.options);
  subject.dtype = run.dtype;
  subject.device = &open_device(run.options.device);
  set_gemm_tuning(*subject.device, run.options.gemm.tuning());
  const BatchLimits limits = training_shape(sizes, run.options).limits;
  for (std::int64_t step = 0; step < options.num_steps; ++step) {
    subject.steps.push_back(next_micro_batches(*run.batches, run.options.gradient_accumulation_steps, limits));
  }
  subject.advice = {.tuned = run.options.gemm.tune_gemm,
                    .gradient_accumulation_steps = run.options.gradient_accumulation_steps,
                    .can_shrink_states = can_shrink_states(run.options.optim, run.dtype)};
  subject.model = std::move(run.model);
  return subject;
}

// Throws Error for a flag that describes a step of a known shape, because the step of a recipe would ignore it.
void check_step_flags(const OptionInput& input) {
  StepOptions step;
  const OptionTable table(step);
  for (const auto& [name, place] : input.places) {
    if (table.find(name) == nullptr || name == "device" || name == "tune_gemm" || name == "gemm_table") continue;
    throw Error(place, "has no effect with a recipe, whose keys describe the step", "remove it, or edit the recipe");
  }
}

template <class Options, class Prepare>
Subject of_recipe(const std::string& file, const ProfileOptions& profile, const OptionInput& flags,
                  const Prepare& prepare) {
  check_step_flags(flags);
  Options options;
  const std::vector<std::string> arguments{"--config", file};
  const OptionInput input = read_options(OptionTable(options), arguments, training_foreign_keys());
  apply_input(kProfileText, input);
  if (options.output_dir.empty()) options.output_dir = profile.output_dir;
  if (flags.was_set("device")) options.device = profile.device;
  if (flags.was_set("tune_gemm")) options.gemm.tune_gemm = profile.gemm.tune_gemm;
  if (flags.was_set("gemm_table")) options.gemm.gemm_table = profile.gemm.gemm_table;
  check_options(options, input);
  return run_only(prepare(options), profile);
}

Subject open_subject(const ProfileOptions& options, const OptionInput& input) {
  constexpr std::string_view kKinds[] = {"pretrain", "sft"};
  const std::vector<std::string>& words = input.positionals;
  if (words.empty()) return of_shape(options);
  const bool is_named = words.size() == 2 && std::ranges::count(kKinds, words[0]) > 0;
  if (!is_named && (words.size() != 1 || !is_recipe(words[0]))) {
    throw Error("hone profile",
                text_of("expected pretrain or sft and a recipe, saw ", shown(std::string_view(join(words, " ")))),
                "for example hone profile sft recipe.yaml");
  }
  const std::string_view kind = is_named ? std::string_view(words[0]) : training_kind_of(words[0], kKinds);
  if (kind == "sft") return of_recipe<SftOptions>(words.back(), options, input, prepare_sft);
  return of_recipe<PretrainOptions>(words.back(), options, input, prepare_pretrain);
}

int profile(const ProfileOptions& given, const OptionInput& input) {
  ProfileOptions options = given;
  options.complete(input);
  ensure_writable_folder(options.output_dir, "output_dir");
  Subject subject = open_subject(options, input);
  Device& device = *subject.device;
  subject.advice.gpu = device.kind() != DeviceKind::kCpu;
  const DeviceLimits limits =
      device_limits(device, subject.dtype, options.limit_seconds, input.was_set("limit_seconds"));

  HONE_ASSERT(subject.workspace.has_value(), "the subject has no programs");
  TrainingStep step(*subject.model, std::move(*subject.workspace), subject.optimizer, subject.dtype, device);
  const auto batches = [&](std::int64_t index) -> std::span<const HostBatch> {
    return subject.steps[static_cast<std::size_t>(index) % subject.steps.size()];
  };
  // The same steps run twice: first without the profiler, for their real duration, then with it.
  // Each program is recorded in its second run, so the warm-up reads all steps at least twice.
  const std::int64_t warmup = std::max(options.warmup_steps, 2 * std::ssize(subject.steps));
  for (std::int64_t i = 0; i < warmup; ++i) step.run(batches(i));
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < options.num_steps; ++i) step.run(batches(i));
  const double unprofiled = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Timeline timeline;
  for (std::int64_t i = 0; i < options.num_steps; ++i) step.run_profiled(batches(i), timeline);

  ProfileReport report = make_report(timeline, limits);
  report.unprofiled_step_seconds = unprofiled / static_cast<double>(options.num_steps);
  const std::vector<std::string> sentences = advice(report, subject.advice);
  const std::filesystem::path folder = options.output_dir;
  const std::string title = text_of(subject.title, " on ", device.name());
  write_file(folder / "chrome_trace.json", chrome_trace(timeline, title).dump() + "\n");
  Json summary = {{"what", subject.title}, {"machine", device.name()}, {"num_steps", options.num_steps}};
  summary.update(to_json(report));
  summary["advice"] = sentences;
  write_json(folder / "kernel_summary.json", summary);

  std::printf("%s, %lld steps\n%s\n", title.c_str(), static_cast<long long>(options.num_steps),
              to_text(report).c_str());
  for (const std::string& sentence : sentences) std::printf("- %s\n", sentence.c_str());
  std::printf("\nchrome_trace.json (open it in ui.perfetto.dev) and kernel_summary.json are in %s\n",
              options.output_dir.c_str());
  return 0;
}

}  // namespace

void register_profile(CommandRegistry& registry) { registry.add(make_command<ProfileOptions>(kProfileText, profile)); }

}  // namespace hone
