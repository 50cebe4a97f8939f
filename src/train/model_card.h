// README.md of a trained model, as the hub shows it.
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"

namespace hone {

struct ModelCard {
  std::string name;      // of the repository, or of the model's folder
  std::string command;   // "sft"
  const Json& options;   // as in effect
  const Json& defaults;  // of the same command
  bool is_adapter = false;
};

// Front matter (base_model, datasets, library_name, tags), then what the model was made of and by which command, with
// the keys that are not defaults. Paths of this machine are cut to their last name.
[[nodiscard]] std::string model_card(const ModelCard& card);

// Writes FOLDER/README.md unless there is one of another hand. Throws Error.
void write_model_card(const std::filesystem::path& folder, const ModelCard& card);

}  // namespace hone
