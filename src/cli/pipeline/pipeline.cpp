// hone pipeline
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
    v("stages", stages, "List of {stage: KIND, name: NAME, KEY: VALUE ...}: the kind's keys, as its command has them");
    v("model_name_or_path", model_name_or_path, "Model of the stages before the first that makes one");
    v("dataset_name", dataset_name, "Data of the stages that name none and follow no stage that makes some");
    v("output_dir", output_dir, "Folder for the stages' folders and pipeline.json");
    v("from", from, "Forget this stage and those behind it, with all that they have written, and run them anew");
    v("dry_run", dry_run, "Only print the stages with their keys, and check them");
  }
};

// The number of the stage that --from names; of all stages where it names none.
std::size_t first_forgotten(const std::string& name, std::span<const Stage> stages) {
  if (name.empty()) return stages.size();
  const auto at = std::ranges::find(stages, name, &Stage::name);
  if (at == stages.end()) throw Error("from", text_of("no stage is called ", shown(name)));
  return static_cast<std::size_t>(at - stages.begin());
}

void forget_from(std::size_t first, std::span<const Stage> stages, PipelineState& state) {
  if (first == stages.size()) return;
  state.forget_from(first);
  for (const Stage& stage : stages.subspan(first)) remove_path(stage.folder);
}

// All that is wrong with the stages that are to run, in one line each, before one of them runs.
void check_stages(std::span<const Stage> stages, const PipelineState& state, std::size_t first_anew,
                  const std::string& file) {
  std::vector<bool> is_done;
  for (std::size_t i = 0; i < stages.size(); ++i) is_done.push_back(i < first_anew && state.is_done(i));
  const std::vector<std::string> problems = problems_in(stages, is_done, file);
  if (problems.empty()) return;
  if (problems.size() == 1) throw Error(text_of(problems[0], "; nothing was started"));
  for (const std::string& problem : problems) log_line("hone: error: " + problem);
  throw Error(file, text_of(problems.size(), " problems, named above; nothing was started"));
}

// In this process: what the stage held is given back when its command returns.
void run_stage(const CommandRegistry& commands, const Stage& stage) {
  const fs::path recipe = stage.folder.string() + ".yaml";
  write_file(recipe, stage.recipe);
  const Command* command = commands.find(stage.kind->command);
  HONE_ASSERT(command != nullptr, "there is no command ", stage.kind->command);
  const std::vector<std::string> arguments = {"--config", recipe.string()};
  try {
    const int code = command->run(arguments);
    if (code != 0) throw Error(text_of("stage ", stage.name), text_of("ended with ", code));
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
  const std::size_t first_anew = first_forgotten(options.from, stages);
  if (options.dry_run) {
    for (const Stage& stage : stages) {
      log_line(text_of("# ", stage.name, ": hone ", stage.kind->command, "\n", stage.recipe));
    }
    check_stages(stages, PipelineState(options.output_dir), first_anew, file);
    return 0;
  }
  claim_folder(options.output_dir, "output_dir");
  PipelineState state(options.output_dir);
  state.check(stages, first_anew);
  check_stages(stages, state, first_anew, file);
  forget_from(first_anew, stages, state);
  state.forget_unbegun();
  catch_interrupts();
  CommandRegistry commands;
  register_all_cli(commands);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string title = text_of("stage ", i + 1, " of ", stages.size(), ", ", stages[i].name);
    if (state.is_done(i)) {
      log_info(title + ": done before");
      continue;
    }
    log_info(text_of(title, ": hone ", stages[i].kind->command, " --config ", stages[i].folder.string(), ".yaml"));
    state.begin(stages, i);
    try {
      run_stage(commands, stages[i]);
    } catch (...) {
      state.forget_unbegun();
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
       .summary = "Several stages from one recipe",
       .details = "Kinds: pretrain, sft, grpo; generate, rejection_sampling (completions that a reward verifies, as "
                  "conversations),\ncurriculum (prompts by how often the model solves them, the easy first); eval. A "
                  "stage without a model takes the\nnewest one, sft and grpo behind a stage that makes data take that; "
                  "${NAME} in a value is what the stage NAME left.\nAll stages are checked before the first starts. A "
                  "pipeline that was stopped goes on inside the stage "
                  "where it was."},
      run));
}

}  // namespace hone
