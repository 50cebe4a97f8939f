// hone grpo
#include "cli/registry.h"
#include "core/interrupt.h"
#include "rl/grpo_run.h"
#include "train/foreign_keys.h"

namespace hone {
namespace {

int run(const GrpoOptions& options, const OptionInput& input) {
  check_options(options, input);
  catch_interrupts();
  GrpoRun prepared = prepare_grpo(options, input);
  train(prepared);
  return 0;
}

}  // namespace

void register_grpo(CommandRegistry& registry) {
  registry.add(make_command<GrpoOptions>({.name = "grpo", .summary = "Reinforcement learning with verifiable rewards"},
                                         run, training_foreign_keys()));
}

}  // namespace hone
