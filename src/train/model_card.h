// README.md of a trained model, as the hub shows it.
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "core/options.h"

namespace hone {

struct ModelCard {
  std::string name;      // of the repository, or of the model's folder
  std::string command;   // "sft"
  const Json& options;   // as in effect
  const Json& defaults;  // of the same command's keys that say what is computed (computed_keys)
  bool is_adapter = false;
};

// The values of the options that say what a run computes, not where or how it runs (Option::of_run).
[[nodiscard]] Json computed_keys(const OptionTable& table);

// Front matter (base_model, datasets, library_name, tags), then what the model was made of and by which command, with
// those keys of `defaults` that have other values. Paths of this machine are cut to their last name.
[[nodiscard]] std::string model_card(const ModelCard& card);

// Writes FOLDER/README.md unless there is one of another hand. Throws Error.
void write_model_card(const std::filesystem::path& folder, const ModelCard& card);

}  // namespace hone
