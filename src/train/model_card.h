// Writes README.md of a trained model, the model card that the Hugging Face hub shows.
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "core/options.h"

namespace hone {

struct ModelCard {
  std::string name;      // name of the repository or of the model's folder
  std::string command;   // for example "sft"
  const Json& options;   // values in effect
  const Json& defaults;  // computed_keys of the default options of the command
  bool is_adapter = false;
};

// Returns the options that affect what a run computes, not where or how it executes (Option::run_only).
[[nodiscard]] Json computed_keys(const OptionTable& table);

// Returns the text: front matter (base_model, datasets, library_name, tags), then the base model, the data set, the
// command and the options whose values differ from `defaults`. Local paths are reduced to their last part.
[[nodiscard]] std::string model_card(const ModelCard& card);

// Writes FOLDER/README.md, unless it exists and was not written by hone. Throws Error if it cannot be written.
void write_model_card(const std::filesystem::path& folder, const ModelCard& card);

}  // namespace hone
