#include "cli/registry.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "cli/training_kind.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/job_log.h"
#include "core/log.h"
#include "core/strings.h"
#include "system/job_place.h"
#include "system/launcher.h"
#include "system/peers.h"

namespace hone {
namespace {

enum ExitCode : int { kDone = 0, kUserError = 1, kDefect = 2, kInterrupted = 130 };

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Prints an error as a single line, also if its message contains line breaks.
void print_error(std::string_view kind, std::string_view message) {
  std::string line(message);
  std::ranges::replace(line, '\n', ' ');
  set_status_line("");
  log_error(text_of("hone: ", kind, line));
}

// A name that users of other tools try, with the hone command to suggest.
struct CommandSynonym {
  std::string_view word;
  std::string_view meant;  // ends with the name of a command
};
constexpr CommandSynonym kCommandWords[] = {
    {"train", "pretrain, sft or grpo"},
    {"training", "pretrain, sft or grpo"},
    {"finetune", "sft"},
    {"fine-tune", "sft"},
    {"rl", "grpo"},
    {"rlhf", "grpo"},
    {"ppo", "grpo"},
    {"evaluate", "eval"},
    {"test", "eval"},
    {"score", "eval"},
    {"talk", "chat"},
    {"sample", "generate"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"benchmark", "bench"},
    {"export", "convert"},
    {"tokenize", "tokenizer"},
    {"memory", "plan"},
    {"completions", "completion"},
    {"manual", "man"},
};

const Command& find_command(const CommandRegistry& registry, const std::string& name) {
  if (const Command* command = registry.find(name)) return *command;
  std::vector<std::string> names;
  for (const Command& known : registry.commands()) names.push_back(known.name);
  for (const CommandSynonym& word : kCommandWords) {
    const bool is_there = std::ranges::any_of(registry.commands(),
                                              [&](const Command& known) { return word.meant.ends_with(known.name); });
    if (is_there) names.emplace_back(word.word);
  }
  std::string meant = nearest_name(name, names);
  const auto word = std::ranges::find(kCommandWords, meant, &CommandSynonym::word);
  if (word != std::end(kCommandWords)) meant = word->meant;
  throw Error(text_of("hone ", shown(name)), "no such command",
              meant.empty() ? "hone --help lists them" : text_of("did you mean ", meant, "?"));
}

void expect_no_more(std::span<const std::string> arguments, std::size_t taken) {
  if (arguments.size() <= taken) return;
  throw Error(text_of("hone ", arguments[0]), text_of("unexpected argument ", shown(arguments[taken])));
}

bool asks_for_help(std::string_view word) { return word == "--help" || word == "-h"; }

int dispatch(const CommandRegistry& registry, std::span<const std::string> arguments) {
  const bool help = !arguments.empty() && (asks_for_help(arguments[0]) || arguments[0] == "help");
  if (arguments.empty() || (help && arguments.size() == 1)) {
    print(program_help(registry));
    return arguments.empty() ? kUserError : kDone;
  }
  if (arguments[0] == "--version") {
    expect_no_more(arguments, 1);
    print(text_of("hone ", HONE_VERSION, "\n"));
    return kDone;
  }
  const Command& command = find_command(registry, help ? arguments[1] : arguments[0]);
  if (help) expect_no_more(arguments, 2);
  const auto rest = arguments.subspan(1);
  const auto end = std::ranges::find(rest, "--");
  if (help || std::any_of(rest.begin(), end, asks_for_help)) {
    print(command.help());
    return kDone;
  }
  if (std::ranges::count(kTrainingKinds, command.name) > 0) {
    const JobPlace place = job_place();
    if (place.rank > 0) set_silent(true);      // rank 0 of a job logs for all
    if (place.listener >= 0) set_quiet(true);  // the process that started it has logged the notices on the keys
  }
  return command.run(rest);
}

}  // namespace

void CommandRegistry::add(Command command) {
  HONE_ASSERT(find(command.name) == nullptr, "the command ", command.name, " is registered twice");
  commands_.push_back(std::move(command));
}

const Command* CommandRegistry::find(std::string_view name) const {
  const auto at = std::ranges::find(commands_, name, &Command::name);
  return at == commands_.end() ? nullptr : &*at;
}

std::string program_help(const CommandRegistry& registry) {
  std::string text =
      "hone trains reasoning language models: tokenizer, pre-training, supervised fine-tuning,\n"
      "reinforcement learning, evaluation, chat and serving.\n\n"
      "Usage: hone COMMAND [RECIPE.yaml] [--key value ...]\n\nCommands:\n";
  for (const Command& command : registry.commands()) {
    std::string name = "  " + command.name;
    name.resize(std::max<std::size_t>(name.size() + 1, 14), ' ');
    text += name + command.summary + "\n";
  }
  return text +
         "\n`hone COMMAND --help` lists the keys of a command. Set a key in the recipe, a YAML file, or as a\n"
         "flag; a flag overrides the recipe. --config FILE names a recipe with any file extension.\n";
}

int run_command_line(const CommandRegistry& registry, std::span<const std::string> arguments) {
  try {
    return dispatch(registry, arguments);
  } catch (const JobFailure& failure) {
    if (failure.is_reported_elsewhere()) return kUserError;
    print_error("error: ", failure.what());
    return kExitLostRank;
  } catch (const Error& error) {
    print_error("error: ", error.what());
    return kUserError;
  } catch (const Interrupted&) {
    log_line("hone: interrupted");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    print_error("error: ", "out of host memory");
    return kUserError;
  } catch (const std::exception& error) {
    print_error("a defect in hone, please report this line and the command: ", error.what());
    return kDefect;
  }
}

}  // namespace hone
