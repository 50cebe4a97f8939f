// The stages of a pipeline: what each runs, with which keys, and what it leaves to the next.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/yaml.h"

namespace hone {

enum class StageOutput { nothing, model, data };

struct StageKind {
  std::string_view name;     // in the recipe
  std::string_view command;  // that runs it
  StageOutput output = StageOutput::nothing;
  bool takes_model = true;  // model_name_or_path: the newest model, where it is not set
  bool takes_data = false;  // dataset_name: the newest data, where it is not set
  // Keys with the values that they have where the recipe does not set them.
  std::vector<std::pair<std::string_view, std::string_view>> defaults;
};

// pretrain, sft, grpo, generate, rejection_sampling, curriculum, eval.
[[nodiscard]] const StageKind& stage_kind(std::string_view name, const std::string& place);  // throws Error

struct Stage {
  std::string name;  // its own, or its kind with a number where that is taken
  const StageKind* kind = nullptr;
  std::filesystem::path folder;  // OUTPUT_DIR/NN-name
  std::string recipe;            // YAML: the command's file, complete
  YamlValue keys;                // the same, with the lines of the pipeline's recipe
  std::string output;            // the model's folder, or the file of data; empty where there is none
};

// OUTPUT_DIR/NN-name; `index` from 0.
[[nodiscard]] std::filesystem::path stage_folder(const std::filesystem::path& output_dir, std::size_t index,
                                                 std::string_view name);

struct PipelineInput {
  std::string model_name_or_path;  // of stages before the first that makes a model
  std::string dataset_name;        // of stages without data from a stage before them
  std::filesystem::path output_dir;
};

// The stages of the recipe's list, each resolved: names, folders, inputs from the stages before, "${NAME}" in a value
// for the output of the stage NAME. `where`: the recipe's file, for errors. Throws Error.
[[nodiscard]] std::vector<Stage> resolve_stages(const YamlValue& list, const PipelineInput& input,
                                                std::string_view where);

}  // namespace hone
