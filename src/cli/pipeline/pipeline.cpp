// hone pipeline: runs several commands from one recipe and resumes them after an interruption.
#include <algorithm>
#include <filesystem>

#include "cli/pipeline/checks.h"
#include "cli/pipeline/stages.h"
#include "cli/pipeline/state.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "system/launcher.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

struct PipelineOptions {
  YamlValue stages;
  std::string model_name_or_path;
  std::string dataset_name;
  std::string output_dir;
  std::string from;
  bool dry_run = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v("stages", stages, "List of {stage: KIND, name: NAME, KEY: VALUE ...}, with the keys of the kind's command");
    v("model_name_or_path", model_name_or_path, "Model of the stages before the first stage that produces one");
    v("dataset_name", dataset_name, "Data of stages that set none and do not follow a stage that produces data");
    v("output_dir", output_dir, "Folder for pipeline.json and the folders of the stages");
    v("from", from, "Name of a stage: delete its output and that of all later stages, and run them again");
    v("dry_run", dry_run, "Print the stages with their keys and check them, without running them");
  }
};

// Returns the index of the stage that --from names, or the number of stages if --from is not set.
std::size_t first_restarted_stage(const std::string& name, std::span<const Stage> stages) {
  if (name.empty()) return stages.size();
  const auto at = std::ranges::find(stages, name, &Stage::name);
  if (at == stages.end()) throw Error("from", text_of("no stage is named ", shown(name)));
  return static_cast<std::size_t>(at - stages.begin());
}

void forget_from(std::size_t first, std::span<const Stage> stages, PipelineState& state) {
  if (first == stages.size()) return;
  state.forget_from(first);
  for (const Stage& stage : stages.subspan(first)) remove_path(stage.folder);
}

// Checks the stages that will run, before the first one starts. Logs one line for each problem and throws Error.
void check_stages(std::span<const Stage> stages, const PipelineState& state, std::size_t first_restarted,
                  const std::string& file) {
  std::vector<bool> is_done;
  is_done.reserve(stages.size());
  for (std::size_t i = 0; i < stages.size(); ++i) is_done.push_back(i < first_restarted && state.is_done(i));
  const std::vector<std::string> problems = problems_in(stages, is_done, file);
  if (problems.empty()) return;
  if (problems.size() == 1) throw Error(text_of(problems[0], "; no stage was started"));
  for (const std::string& problem : problems) log_line("hone: error: " + problem);
  throw Error(file, text_of(problems.size(), " problems, listed above; no stage was started"));
}

// Runs a stage in this process. Its memory is released when the command returns.
void run_stage(const CommandRegistry& commands, const Stage& stage) {
  const fs::path recipe = stage.folder.string() + ".yaml";
  write_file(recipe, stage.recipe);
  const Command* command = commands.find(stage.kind->command);
  HONE_ASSERT(command != nullptr, "there is no command ", stage.kind->command);
  const std::vector<std::string> arguments = {"--config", recipe.string()};
  const CommandScope scope({"hone", std::string(stage.kind->command), "--config", recipe.string()});
  try {
    const int code = command->run(arguments);
    if (code != 0) throw Error(text_of("stage ", stage.name), text_of("ended with exit code ", code));
  } catch (const Error& error) {
    throw Error(text_of("stage ", stage.name), error.what());
  }
}

int run(const PipelineOptions& options, const OptionInput& input) {
  if (options.output_dir.empty()) throw Error("output_dir", "is not set", "the folder for all stages");
  const std::string place = input.place_of("stages");
  const std::string file = place.substr(0, place.find(':'));
  const std::vector<Stage> stages =
      resolve_stages(options.stages, {options.model_name_or_path, options.dataset_name, options.output_dir}, file);
  const std::size_t first_restarted = first_restarted_stage(options.from, stages);
  if (options.dry_run) {
    for (const Stage& stage : stages) {
      log_line(text_of("# ", stage.name, ": hone ", stage.kind->command, "\n", stage.recipe));
    }
    check_stages(stages, PipelineState(options.output_dir), first_restarted, file);
    return 0;
  }
  // All checks come before the first change, so that a refused pipeline leaves the earlier output as it was.
  ensure_writable_folder(options.output_dir, "output_dir");
  PipelineState state(options.output_dir);
  state.check(stages, first_restarted);
  check_stages(stages, state, first_restarted, file);
  forget_from(first_restarted, stages, state);
  state.discard_unstarted_stage();
  catch_interrupts();
  CommandRegistry commands;
  register_all_cli(commands);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string title = text_of("stage ", i + 1, " of ", stages.size(), ", ", stages[i].name);
    if (state.is_done(i)) {
      log_info(title + ": already done");
      continue;
    }
    log_info(text_of(title, ": hone ", stages[i].kind->command, " --config ", stages[i].folder.string(), ".yaml"));
    state.begin(stages, i);
    try {
      run_stage(commands, stages[i]);
    } catch (...) {
      state.discard_unstarted_stage();  // a stage that left nothing may start again with other keys
      throw;
    }
    throw_if_interrupted();
    state.finish(i);
  }
  return 0;
}

}  // namespace

void register_pipeline(CommandRegistry& registry) {
  registry.add(make_command<PipelineOptions>(
      {.name = "pipeline",
       .summary = "Run several stages from one recipe",
       .details = "Kinds of stages:\n"
                  "  pretrain, sft, grpo   train a model\n"
                  "  generate              complete prompts and filter the completions into data\n"
                  "  rejection_sampling    generate, keeping completions that a reward verifies, as conversations\n"
                  "  curriculum            generate, keeping prompts sorted by how often the model solves them\n"
                  "  eval                  evaluate the model\n"
                  "A stage without a model uses the latest one. sft and grpo use the data of the stage directly\n"
                  "before them. ${NAME} in a value is the output of the stage NAME. All stages are checked before\n"
                  "the first one starts. An interrupted pipeline resumes within its current stage."},
      run));
}

}  // namespace hone
