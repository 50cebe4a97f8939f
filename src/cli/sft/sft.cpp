// hone sft: trains a model with supervised fine-tuning.
#include <optional>

#include "cli/model_sketch.h"
#include "cli/registry.h"
#include "cli/training_hooks.h"
#include "cli/training_job.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "planner/auto_layout.h"
#include "planner/dry_run.h"
#include "train/foreign_keys.h"
#include "train/language_run.h"
#include "train/launch.h"

namespace hone {
namespace {

int run(const SftOptions& given, const OptionInput& input) {
  SftOptions options = given;
  apply_launch_file(options, input);
  check_options(options, input);
  const auto work = [&](const Job& job) {
    std::optional<TrainingHooks> hooks;
    if (job.is_first()) hooks.emplace("sft", options, input);
    if (options.dry_run) return print_dry_run(prepare_sft(options));
    ensure_writable_folder(options.output_dir, "output_dir");
    catch_interrupts();
    LanguageRun prepared = prepare_in_turn(job, [&] { return prepare_sft(options); });
    prepared.job = job;
    if (hooks) prepared.observers = hooks->observers();
    train(prepared);
    return 0;
  };
  return run_as_job(options, work, [&](const Job& job) {
    choose_layout(job, options, input, [&] { return model_to_train(options); });
  });
}

}  // namespace

void register_sft(CommandRegistry& registry) {
  registry.add(make_command<SftOptions>({.name = "sft", .summary = "Fine-tune on conversations, completions or text"},
                                        run, training_foreign_keys()));
}

}  // namespace hone
