// hone grpo: trains a model with reinforcement learning on verifiable rewards.
#include <cstdio>

#include "cli/registry.h"
#include "cli/training_hooks.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "planner/dry_run.h"
#include "rl/grpo_run.h"
#include "rl/show.h"
#include "system/job_place.h"
#include "train/foreign_keys.h"
#include "train/launch.h"

namespace hone {
namespace {

struct GrpoCommandOptions : GrpoOptions {
  std::vector<std::string> show;

  template <class Visitor>
  void fields(Visitor& v) {
    GrpoOptions::fields(v);
    v.run_only([&] {
      v("show", show, "RUN [STEP]: print the completions of a step of a run, by default the last, and do not train");
    });
  }
};

int run(const GrpoCommandOptions& options, const OptionInput& input) {
  if (!options.show.empty()) {
    if (options.show.size() > 2) {
      throw Error("--show", text_of("expected a run's output_dir and a step, saw ", options.show.size(), " words"));
    }
    const std::string step = options.show.size() == 2 ? options.show[1] : "";
    std::fputs(format_completions(options.show[0], step, options.num_completions_to_print).c_str(), stdout);
    return 0;
  }
  check_options(options, input);
  if (processes_of(options, job_place()) > 1) {
    throw Error("num_processes", "hone grpo does not train in several processes yet",
                "--num_processes 1, and gradient_accumulation_steps times as many keeps the batch");
  }
  const TrainingHooks hooks("grpo", options, input);
  if (!options.dry_run) {
    ensure_writable_folder(options.output_dir, "output_dir");
    catch_interrupts();
  }
  GrpoRun prepared = prepare_grpo(options, input);
  try_rewards(prepared);
  if (options.dry_run) return print_dry_run(prepared);
  prepared.observers = hooks.observers();
  train(prepared);
  return 0;
}

}  // namespace

void register_grpo(CommandRegistry& registry) {
  registry.add(make_command<GrpoCommandOptions>(
      {.name = "grpo", .summary = "Train with reinforcement learning on verifiable rewards"}, run,
      training_foreign_keys()));
}

}  // namespace hone
