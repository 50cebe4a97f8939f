// Opens datasets by name: local files, or a dataset on the Hugging Face hub.
#pragma once

#include <string>

#include "data/source.h"

namespace hone {

struct DatasetName {
  std::string name;    // file, folder, pattern, several of these separated by commas, or "ORG/NAME" on the hub
  std::string config;  // empty: the default configuration
  std::string revision = "main";
};

// Opens the split `options.split` of a dataset and downloads it if necessary. Throws Error.
[[nodiscard]] Source open_dataset(const DatasetName& dataset, const SourceOptions& options);
// Returns true if file names or README.md define the dataset's splits. Throws Error.
[[nodiscard]] bool names_splits(const DatasetName& dataset);

}  // namespace hone
