// Resolves the stages of a pipeline's recipe: the command that each stage runs, its complete keys, and the output that
// the next stages use.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/yaml.h"

namespace hone {

enum class StageOutput { kNothing, kModel, kData };

struct StageKind {
  std::string_view name;     // value of the key `stage` in the recipe
  std::string_view command;  // the hone command that runs the stage
  StageOutput output = StageOutput::kNothing;
  bool takes_model = true;  // an unset model_name_or_path becomes the latest model of the stages before
  bool takes_data = false;  // an unset dataset_name becomes the data of the stage directly before
  // Keys and values that apply if the recipe does not set the key.
  std::vector<std::pair<std::string_view, std::string_view>> defaults;
};

// Returns the kind called pretrain, sft, grpo, generate, rejection_sampling, curriculum or eval. Throws an Error
// located at `place` for any other name.
[[nodiscard]] const StageKind& stage_kind(std::string_view name, const std::string& place);

struct Stage {
  std::string name;  // unique: from the recipe, otherwise the kind, with a number if needed: sft, sft2
  const StageKind* kind = nullptr;
  std::filesystem::path folder;  // OUTPUT_DIR/NN-name
  std::string recipe;            // complete recipe of the command, as YAML
  YamlValue keys;                // the same keys, with line numbers of the pipeline's recipe
  std::string output;            // folder of the model or file of the data; empty if the stage leaves neither
};

// Returns OUTPUT_DIR/NN-name. `index` counts from 0, NN from 01.
[[nodiscard]] std::filesystem::path stage_folder(const std::filesystem::path& output_dir, std::size_t index,
                                                 std::string_view name);

struct PipelineInput {
  std::string model_name_or_path;  // model of the stages before the first stage that produces one
  std::string dataset_name;        // data of stages that set none and do not follow a stage that produces data
  std::filesystem::path output_dir;
};

// Resolves the list of stages of a recipe: chooses names and folders, fills in the inputs that come from earlier
// stages, and replaces "${NAME}" in a value by the output of the stage NAME. `where` is the recipe's file, for
// messages. Throws Error if a stage has no kind, no model or a name that is taken, or refers to an unknown stage.
[[nodiscard]] std::vector<Stage> resolve_stages(const YamlValue& list, const PipelineInput& input,
                                                std::string_view where);

}  // namespace hone
