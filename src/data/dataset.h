// Datasets by name: local files, or a dataset of the Hugging Face hub.
#pragma once

#include <string>

#include "data/source.h"

namespace hone {

struct DatasetName {
  std::string name;    // file, folder, pattern, several of them with commas between, or "ORG/NAME" on the hub
  std::string config;  // empty: the default one
  std::string revision = "main";
};

// The split `options.split` of a dataset. Throws Error.
[[nodiscard]] Source open_dataset(const DatasetName& dataset, const SourceOptions& options);
// Whether it says which of its files are which split. Throws Error.
[[nodiscard]] bool names_splits(const DatasetName& dataset);

}  // namespace hone
