// hone plan: what a run will need, before it starts.
#include <cstdio>
#include <map>
#include <string>

#include "cli/registry.h"
#include "core/error.h"
#include "core/strings.h"
#include "planner/plan.h"
#include "train/foreign_keys.h"

namespace hone {
namespace {

const CommandText kText{.name = "plan",
                        .summary = "What a run will need: parameters, memory to the byte, FLOPs",
                        .positionals = "pretrain|sft|grpo",
                        .details =
                            "Takes the keys and flags of the command that it plans. Reads the data and\n"
                            "the configuration, but no weights.\n"};

template <class Options, class Plan>
int plan_for(std::span<const std::string> arguments, const Plan& plan) {
  Options options;
  const OptionInput input = read_options(OptionTable(options), arguments, training_foreign_keys());
  if (input.help) {
    Options defaults;
    std::fputs(command_help(kText, OptionTable(defaults)).c_str(), stdout);
    return 0;
  }
  apply_input(kText, input);
  check_options(options, input);
  std::fputs(to_text(plan(options, input)).c_str(), stdout);
  return 0;
}

int run(std::span<const std::string> arguments) {
  const std::string kind = arguments.empty() ? std::string() : arguments[0];
  const auto rest = arguments.empty() ? arguments : arguments.subspan(1);
  if (kind == "pretrain") {
    return plan_for<PretrainOptions>(
        rest, [](const auto& options, const auto&) { return plan_run(prepare_pretrain(options)); });
  }
  if (kind == "sft") {
    return plan_for<SftOptions>(rest, [](const auto& options, const auto&) { return plan_run(prepare_sft(options)); });
  }
  if (kind == "grpo") {
    return plan_for<GrpoOptions>(
        rest, [](const auto& options, const auto& input) { return plan_run(prepare_grpo(options, input)); });
  }
  throw Error("hone plan", text_of("expected pretrain, sft or grpo, saw '", kind, "'"),
              "for example hone plan sft --config recipe.yaml");
}

}  // namespace

void register_plan(CommandRegistry& registry) {
  registry.add({.name = kText.name,
                .summary = kText.summary,
                .help =
                    [] {
                      return text_of("Usage: hone plan ", kText.positionals,
                                     " [--config FILE.yaml] [--key value ...]\n\n", kText.summary, ".\n\n",
                                     kText.details);
                    },
                .run = run});
}

}  // namespace hone
