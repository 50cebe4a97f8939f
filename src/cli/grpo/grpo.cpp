// hone grpo: trains a model with reinforcement learning on verifiable rewards.
#include <cstdio>
#include <optional>

#include "cli/registry.h"
#include "cli/training_hooks.h"
#include "cli/training_job.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "planner/dry_run.h"
#include "rl/grpo_run.h"
#include "rl/show.h"
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

int run(const GrpoCommandOptions& given, const OptionInput& input) {
  if (!given.show.empty()) {
    if (given.show.size() > 2) {
      throw Error("--show", text_of("expected a run's output_dir and a step, saw ", given.show.size(), " words"));
    }
    const std::string step = given.show.size() == 2 ? given.show[1] : "";
    std::fputs(format_completions(given.show[0], step, given.num_completions_to_print).c_str(), stdout);
    return 0;
  }
  GrpoCommandOptions options = given;
  apply_launch_file(options, input);
  check_options(options, input);
  return run_as_job(options, [&](const Job& job) {
    check_processes(options, input);
    std::optional<TrainingHooks> hooks;
    if (job.is_first()) hooks.emplace("grpo", options, input);
    if (!options.dry_run) {
      ensure_writable_folder(options.output_dir, "output_dir");
      catch_interrupts();
    }
    GrpoRun prepared = prepare_in_turn(job, [&] { return prepare_grpo(options, input); });
    prepared.job = job;
    if (job.tensor_rank() == 0) try_rewards(prepared);  // the others of a tensor group judge nothing
    if (options.dry_run) return print_dry_run(prepared);
    if (hooks) prepared.observers = hooks->observers();
    train(prepared);
    return 0;
  });
}

}  // namespace

void register_grpo(CommandRegistry& registry) {
  registry.add(make_command<GrpoCommandOptions>(
      {.name = "grpo", .summary = "Train with reinforcement learning on verifiable rewards"}, run,
      training_foreign_keys()));
}

}  // namespace hone
