// hone sft: trains a model with supervised fine-tuning.
#include "cli/registry.h"
#include "cli/training_hooks.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "planner/dry_run.h"
#include "train/foreign_keys.h"
#include "train/language_run.h"

namespace hone {
namespace {

int run(const SftOptions& options, const OptionInput& input) {
  check_options(options, input);
  const TrainingHooks hooks("sft", options, input);
  if (options.dry_run) return print_dry_run(prepare_sft(options));
  ensure_writable_folder(options.output_dir, "output_dir");
  catch_interrupts();
  LanguageRun prepared = prepare_sft(options);
  prepared.observers = hooks.observers();
  train(prepared);
  return 0;
}

}  // namespace

void register_sft(CommandRegistry& registry) {
  registry.add(make_command<SftOptions>({.name = "sft", .summary = "Fine-tune on conversations, completions or text"},
                                        run, training_foreign_keys()));
}

}  // namespace hone
