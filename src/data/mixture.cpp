#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/options.h"
#include "core/strings.h"
#include "data/numpy_permutation.h"

namespace hone {
namespace {

struct MixtureKeys {
  YamlValue datasets;
  std::int64_t seed = 0;
  std::optional<double> test_split_size;

  template <class Visitor>
  void fields(Visitor& v) {
    v("datasets", datasets, "Datasets to mix");
    v("seed", seed, "Seed of the shuffles", at_least(0));
    v("test_split_size", test_split_size, "Share or number of rows held out", above(0));
  }
};

void check_columns(const std::vector<MixtureDataset>& datasets, const std::string& place) {
  const std::vector<std::string>* first = nullptr;
  for (const MixtureDataset& dataset : datasets) {
    if (dataset.columns.empty()) continue;
    if (first == nullptr) first = &dataset.columns;
    if (std::set(first->begin(), first->end()) != std::set(dataset.columns.begin(), dataset.columns.end())) {
      throw Error(
          place,
          text_of("the datasets keep different columns: ", join(*first, ", "), " and ", join(dataset.columns, ", ")),
          "list the same columns for each dataset");
    }
  }
}

// A row of the mixture: row `row` of dataset `part`.
struct PlacedRow {
  std::uint32_t part;
  std::uint32_t row;

  auto operator<=>(const PlacedRow&) const = default;
};

// Counts the usable rows. Throws Error if the first one lacks a column of `columns`.
std::uint32_t count_rows(const Source& source, const std::vector<std::string>& columns) {
  std::int64_t count = 0;
  BadRows bad;
  source.for_each_row(bad, [&](const Json& row, const RowPlace&) {
    if (++count > 1) return;
    for (const std::string& column : columns) {
      if (row.contains(column)) continue;
      std::vector<std::string> names;
      for (const auto& item : row.items()) names.push_back(item.key());
      throw Error(source.name(), text_of("has no column '", column, "'; it has: ", join(names, ", ")),
                  "change the columns of dataset_mixture");
    }
  });
  if (count == 0) throw Error(source.name(), bad.count() == 0 ? "holds no rows" : bad.describe(bad.count()));
  if (count > std::numeric_limits<std::uint32_t>::max()) throw Error(source.name(), "has more than 2^32 - 1 rows");
  return static_cast<std::uint32_t>(count);
}

// Selects the rows of one dataset, in the mixture's order.
std::vector<PlacedRow> chosen_rows(const MixtureDataset& dataset, std::uint32_t part, std::uint32_t count,
                                   std::uint64_t seed) {
  std::vector<PlacedRow> rows;
  if (!dataset.weight) {
    for (std::uint32_t row = 0; row < count; ++row) rows.push_back({part, row});
    return rows;
  }
  const auto wanted = static_cast<std::size_t>(static_cast<double>(count) * *dataset.weight);
  std::vector<std::uint32_t> order = numpy_permutation(seed, count);
  order.resize(std::min(wanted, order.size()));
  for (const std::uint32_t row : order) rows.push_back({part, row});
  return rows;
}

// Builds a source that visits the given rows in file order and reports `rows` as their order.
Source source_of(const std::vector<PlacedRow>& rows, const std::vector<SourcePart>& files,
                 const std::vector<std::uint32_t>& counts, const std::string& name, const SourceOptions& options) {
  std::vector<SourcePart> parts = files;
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].kept.assign(counts[i], false);
  for (const PlacedRow& row : rows) parts[row.part].kept[row.row] = true;
  std::vector<PlacedRow> visited = rows;
  std::sort(visited.begin(), visited.end());
  std::vector<std::uint32_t> order;
  order.reserve(rows.size());
  for (const PlacedRow& row : rows) {
    order.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(visited, row) - visited.begin()));
  }
  return {name, std::move(parts), options, std::move(order)};
}

std::size_t test_rows(double size, std::size_t count) {
  const double wanted = size < 1 ? std::ceil(size * static_cast<double>(count)) : size;
  if (wanted != std::floor(wanted) || wanted >= static_cast<double>(count)) {
    throw Error("dataset_mixture.test_split_size", text_of("is ", size, ", and the mixture has ", count, " rows"),
                "give a share below 1, or a whole number of rows that is less than that");
  }
  return static_cast<std::size_t>(wanted);
}

}  // namespace

Mixture read_mixture(const YamlValue& value, const std::string& place) {
  MixtureKeys keys;
  OptionInput input;
  read_option_keys(OptionTable(keys), value, place, {}, input);
  if (keys.datasets.kind != YamlValue::Kind::kList || keys.datasets.items.empty()) {
    throw Error(place, "has no list of datasets", "datasets: [{id: NAME, weight: 0.5}, ...]");
  }
  Mixture mixture{.datasets = {}, .seed = keys.seed, .test_split_size = keys.test_split_size};
  for (const YamlValue& item : keys.datasets.items) {
    MixtureDataset dataset;
    read_option_keys(OptionTable(dataset), item, place, {}, input);
    if (dataset.id.empty()) throw Error(place, text_of("dataset ", mixture.datasets.size() + 1, " has no id"));
    if (dataset.weight && !(*dataset.weight > 0 && *dataset.weight <= 1)) {
      throw Error(place, text_of("the weight of ", dataset.id, " is ", *dataset.weight),
                  "it is the share of its rows that is kept: above 0, at most 1");
    }
    mixture.datasets.push_back(std::move(dataset));
  }
  check_columns(mixture.datasets, place);
  return mixture;
}

MixtureSources open_mixture(const Mixture& mixture, const SourceOptions& options,
                            const std::function<Source(const MixtureDataset&)>& open) {
  const auto seed = static_cast<std::uint64_t>(mixture.seed);
  // Choose the rows of each dataset.
  std::vector<SourcePart> files;
  std::vector<std::uint32_t> counts;
  std::vector<PlacedRow> all;
  std::vector<std::string> names;
  for (const MixtureDataset& dataset : mixture.datasets) {
    const Source source = open(dataset);
    HONE_ASSERT(source.parts().size() == 1);
    counts.push_back(count_rows(source, dataset.columns));
    const auto rows = chosen_rows(dataset, static_cast<std::uint32_t>(files.size()), counts.back(), seed);
    all.insert(all.end(), rows.begin(), rows.end());
    files.push_back(source.parts().front());
    files.back().columns = dataset.columns;
    names.push_back(source.name());
    log_info(text_of("mixture: ", format_count(static_cast<std::int64_t>(rows.size())), " of the ",
                     format_count(counts.back()), " rows of ", source.name()));
  }
  if (all.empty()) throw Error("dataset_mixture", "the weights leave no rows", "increase the weights");
  if (all.size() > std::numeric_limits<std::uint32_t>::max()) throw Error("dataset_mixture", "has more than 2^32 rows");

  const auto shuffled = [&](const std::vector<PlacedRow>& rows) {
    std::vector<PlacedRow> out;
    for (const std::uint32_t at : numpy_permutation(seed, static_cast<std::uint32_t>(rows.size())))
      out.push_back(rows[at]);
    return out;
  };
  const std::string name = text_of("the mixture of ", join(names, ", "));
  // Shuffle the whole mixture; a second shuffle separates the test part, as in open-r1.
  all = shuffled(all);
  if (!mixture.test_split_size) return {.train = source_of(all, files, counts, name, options), .test = std::nullopt};
  const auto held_out = static_cast<std::ptrdiff_t>(test_rows(*mixture.test_split_size, all.size()));
  all = shuffled(all);
  return {.train = source_of({all.begin() + held_out, all.end()}, files, counts, name, options),
          .test = source_of({all.begin(), all.begin() + held_out}, files, counts, name, options)};
}

}  // namespace hone
