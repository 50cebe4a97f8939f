#include "cli/profile/subject.h"

#include <algorithm>
#include <utility>

#include "cli/command.h"
#include "cli/profile/node_clock.h"
#include "cli/training_kind.h"
#include "core/error.h"
#include "core/strings.h"
#include "train/foreign_keys.h"
#include "train/language_run.h"
#include "train/language_task.h"
#include "train/memory_fit.h"
#include "train/setup.h"

namespace hone {
namespace {

StepSettings settings_of(const TrainingOptions& options, DType dtype, const Device& device) {
  return {.recomputes = options.gradient_checkpointing == Recomputation::kOn,
          .offloads = options.activation_offloading,
          .tuned = options.gemm.tune_gemm,
          .gpu = device.kind() != DeviceKind::kCpu,
          .dtype = dtype,
          .optim = options.optim,
          .batch_size = options.per_device_train_batch_size,
          .accumulation = options.gradient_accumulation_steps};
}

Subject of_shape(const ProfileOptions& options) {
  Subject subject;
  const double start = host_seconds();
  subject.model = open_shape(options);
  subject.title = options.model;
  subject.workspace = trace_step(options, *subject.model);
  check_step_fits(options, *subject.model, *subject.workspace);
  TrainingOptions training = options.training();
  training.gradient_accumulation_steps = options.gradient_accumulation_steps;
  training.gemm = options.gemm;
  subject.optimizer = optimizer_options(training);
  subject.dtype = options.weight_dtype();
  subject.device = &open_device(options.device);
  set_gemm_tuning(*subject.device, options.gemm.tuning());
  const HostBatch batch = random_batch(options, subject.model->shape().vocab_size);
  subject.steps.emplace_back(static_cast<std::size_t>(options.gradient_accumulation_steps), batch);
  subject.settings = settings_of(training, subject.dtype, *subject.device);
  subject.start_seconds = host_seconds() - start;
  return subject;
}

Subject of_run(LanguageRun run, std::int64_t steps, double start) {
  Subject subject;
  subject.start_seconds = host_seconds() - start;
  subject.total_steps = run.total_steps;
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
  const double reading = host_seconds();
  for (std::int64_t step = 0; step < steps; ++step) {
    subject.steps.push_back(next_micro_batches(*run.batches, run.options.gradient_accumulation_steps, limits));
  }
  subject.data_seconds = (host_seconds() - reading) / static_cast<double>(steps);
  subject.settings = settings_of(run.options, run.dtype, *subject.device);
  subject.settings.of_recipe = true;
  subject.model = std::move(run.model);
  return subject;
}

// Throws Error if a model or its tokens are divided over processes: a profile is of one.
void check_one_process(const TrainingOptions& options, const OptionInput& input) {
  for (const auto& [key, size, of_weights, of_tokens] : options.group_sizes()) {
    if (size > 1)
      throw Error(input.place_of(key), text_of("is ", size, ", but a profile is of one process"),
                  text_of("--", key, " 1"));
  }
}

void set_data_settings(const PretrainOptions& options, StepSettings& settings) {
  settings.caches_tokens = options.token_cache;
}
void set_data_settings(const SftOptions& options, StepSettings& settings) {
  settings.caches_tokens = options.token_cache;
  settings.packs = options.packing;
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

template <class Options>
Subject of_recipe(const RecipeSource& source, const Settings& changes, LanguageRun (*prepare)(const Options&)) {
  Options options;
  const OptionInput input = read_recipe(source, changes, OptionTable(options), options);
  if (options.output_dir.empty()) options.output_dir = source.profile.output_dir;
  check_options(options, input);
  const double start = host_seconds();
  Subject subject = of_run(prepare(options), source.profile.num_steps, start);
  set_data_settings(options, subject.settings);
  return subject;
}

}  // namespace

double Subject::tokens_per_step() const {
  double tokens = 0;
  for (const std::vector<HostBatch>& step : steps) {
    for (const HostBatch& batch : step) tokens += static_cast<double>(batch.token_count());
  }
  return tokens / static_cast<double>(steps.size());
}

std::string settings_text(const Settings& settings) {
  std::string text;
  for (std::size_t i = 0; i + 1 < settings.size(); i += 2) {
    text += text_of(text.empty() ? "" : ", ", settings[i].substr(2), ": ", settings[i + 1]);
  }
  return text;
}

OptionInput read_recipe(const RecipeSource& source, const Settings& changes, const OptionTable& table,
                        TrainingOptions& options) {
  check_step_flags(source.flags);
  std::vector<std::string> arguments{"--config", source.file};
  arguments.insert(arguments.end(), changes.begin(), changes.end());
  OptionInput input = read_options(table, arguments, training_foreign_keys());
  apply_input(kProfileText, input);
  check_one_process(options, input);
  const auto is_given = [&](std::string_view key) {
    return source.flags.was_set(key) && std::ranges::count(changes, text_of("--", key)) == 0;
  };
  if (is_given("device")) options.device = source.profile.device;
  if (is_given("tune_gemm")) options.gemm.tune_gemm = source.profile.gemm.tune_gemm;
  if (is_given("gemm_table")) options.gemm.gemm_table = source.profile.gemm.gemm_table;
  return input;
}

OpenSubject subject_source(const ProfileOptions& options, const OptionInput& input) {
  constexpr std::string_view kKinds[] = {"pretrain", "sft"};
  const std::vector<std::string>& words = input.positionals;
  if (words.empty()) {
    return [options, input](const Settings& changes) {
      ProfileOptions changed = options;
      OptionInput all = input;
      read_option_flags(OptionTable(changed), changes, {}, all);
      changed.complete(all);
      return of_shape(changed);
    };
  }
  const bool is_named = words.size() == 2 && std::ranges::count(kKinds, words[0]) > 0;
  if (!is_named && (words.size() != 1 || !is_recipe(words[0]))) {
    throw Error("hone profile",
                text_of("expected pretrain, sft or grpo and a recipe, saw ", shown(std::string_view(join(words, " ")))),
                "for example hone profile sft recipe.yaml");
  }
  const std::string_view kind = is_named ? std::string_view(words[0]) : training_kind_of(words[0], kKinds);
  const RecipeSource source{.file = words.back(), .profile = options, .flags = input};
  if (kind == "sft") {
    return [source](const Settings& changes) { return of_recipe<SftOptions>(source, changes, prepare_sft); };
  }
  return [source](const Settings& changes) { return of_recipe<PretrainOptions>(source, changes, prepare_pretrain); };
}

}  // namespace hone
