#include "rl/reward_rows.h"

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "data/dataset.h"

namespace hone {
namespace {

// Opens the data set of a query. A path to a file is used literally: it may contain characters of file patterns.
Source source_of(const RowQuery& query) {
  if (!is_file(query.dataset)) return open_dataset({.name = query.dataset, .config = query.config}, {});
  std::vector<SourcePart> parts;
  parts.push_back({.files = {query.dataset}, .columns = {}, .kept = {}});
  return {query.dataset, std::move(parts), {}};
}

}  // namespace

void visit_rows(const RowQuery& query, const std::function<void(std::span<const std::string_view>)>& visit) {
  BadRows bad;
  std::vector<std::string_view> values(query.columns.size());
  const RowFilter filter{.key_column = query.key_column, .key = query.key, .columns = query.columns};
  source_of(query).for_each_matching_row(filter, bad, [&](const Json& row, const RowPlace& place) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Json& value = row[query.columns[i]];
      if (!value.is_string()) {
        throw Error(text_of(*place.file, " ", place.unit, " ", place.number),
                    text_of("the column ", query.columns[i], " is ", value.dump().substr(0, 40)), "expected a string");
      }
      values[i] = value.get_ref<const std::string&>();
    }
    visit(values);
  });
  if (bad.count() > 0) throw Error(bad.first().front());
}

}  // namespace hone
