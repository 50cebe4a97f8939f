// Mixtures of datasets, with the meaning that open-r1 gives them: its src/open_r1/configs.py and utils/data.py.
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
  std::vector<std::string> columns;    // empty: all
  std::optional<double> weight = 1.0;  // share of its rows that is kept; nullopt: all, unshuffled

  template <class Visitor>
  void fields(Visitor& v) {
    v("id", id, "File, folder or name on the hub");
    v("config", config, "Its configuration");
    v("split", split, "Its split");
    v("columns", columns, "Columns to keep");
    v("weight", weight, "Share of its rows");
  }
};

struct Mixture {
  std::vector<MixtureDataset> datasets;
  std::int64_t seed = 0;
  std::optional<double> test_split_size;
};
// From a map {datasets, seed, test_split_size}. Throws Error, beginning with `place`.
[[nodiscard]] Mixture read_mixture(const YamlValue& value, const std::string& place);

struct MixtureSources {
  Source train;
  std::optional<Source> test;  // where there is a test_split_size
};
// Of each dataset, which `open` opens, the first share `weight` of a shuffle by `seed`; all these, one after another,
// shuffled by `seed`; of that test_split_size rows, drawn by `seed` once more, are the test part. The shuffles are
// numpy's, so that rows and order are those of open-r1. Reads all rows once, to count them. Throws Error.
[[nodiscard]] MixtureSources open_mixture(const Mixture& mixture, const SourceOptions& options,
                                          const std::function<Source(const MixtureDataset&)>& open);

}  // namespace hone
