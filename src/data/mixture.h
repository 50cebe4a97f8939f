// Mixtures of datasets, with the same meaning as in open-r1 (src/open_r1/configs.py and utils/data.py).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/yaml.h"
#include "data/source.h"

namespace hone {

struct MixtureDataset {
  std::string id;
  std::string config;
  std::string split = "train";
  std::vector<std::string> columns;    // columns to keep; empty: all
  std::optional<double> weight = 1.0;  // share of the rows to keep, after shuffling; nullopt: all, unshuffled

  template <class Visitor>
  void fields(Visitor& v) {
    v("id", id, "File, folder, or name on the Hugging Face hub");
    v("config", config, "Configuration of the dataset");
    v("split", split, "Split of the dataset");
    v("columns", columns, "Columns to keep; empty keeps all");
    v("weight", weight, "Share of its rows to keep");
  }
};

struct Mixture {
  std::vector<MixtureDataset> datasets;
  std::int64_t seed = 0;
  std::optional<double> test_split_size;
};
// Reads a mixture from a map {datasets, seed, test_split_size}. Throws Error that begins with `place`.
[[nodiscard]] Mixture read_mixture(const YamlValue& value, const std::string& place);

struct MixtureSources {
  Source train;
  std::optional<Source> test;  // set if there is a test_split_size
};
// Opens a mixture. Each dataset, opened by `open`, is shuffled by `seed` and contributes the first share `weight` of
// its rows. The rows of all datasets are concatenated and shuffled by `seed`. A second shuffle by `seed` selects
// test_split_size rows as the test part. The shuffles are numpy's, so rows and order equal those of open-r1. Reads all
// rows once to count them. Throws Error.
[[nodiscard]] MixtureSources open_mixture(const Mixture& mixture, const SourceOptions& options,
                                          const std::function<Source(const MixtureDataset&)>& open);

}  // namespace hone
