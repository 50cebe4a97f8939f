// The values of a record batch: buffers that lie in the file, or that were decompressed from it.
// Source: https://arrow.apache.org/docs/format/Columnar.html
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "data/arrow/arrow_schema.h"

namespace hone {

struct ArrowArray {
  const ArrowField* field = nullptr;
  std::int64_t length = 0;
  std::string_view validity;  // a bit a value; empty: none is null
  std::string_view offsets;   // [length + 1]; empty where the type has none
  std::string_view values;
  std::vector<ArrowArray> arrays;
};

struct ArrowBatch {
  std::int64_t length = 0;
  std::vector<ArrowArray> columns;
  std::shared_ptr<const void> storage;  // keeps decompressed buffers
};

// The values that indices point to: batches of one column, one after another.
using ArrowDictionaries = std::map<std::int64_t, std::vector<ArrowBatch>>;

// The batch that `header` (RecordBatch) and `body` describe. Throws DamagedArrow where a buffer lies outside of the
// body or is too small for its array.
[[nodiscard]] ArrowBatch read_arrow_batch(const std::vector<ArrowField>& fields, const FlatTable& header,
                                          std::string_view body);

// Reads cells. Throws DamagedArrow where an offset or an index lies outside of what it points into.
class ArrowCells {
 public:
  explicit ArrowCells(const ArrowDictionaries& dictionaries) : dictionaries_(dictionaries) {}
  // The row of a batch as an object; what is wrong with it, though not with the file, goes to `fault`.
  [[nodiscard]] Json row(const ArrowBatch& batch, std::int64_t index, std::string& fault);

 private:
  [[nodiscard]] Json cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json plain_cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json list_cell(const ArrowArray& items, std::int64_t begin, std::int64_t end);
  [[nodiscard]] Json dictionary_cell(std::int64_t dictionary, std::int64_t index);

  const ArrowDictionaries& dictionaries_;
  std::string* fault_ = nullptr;
  std::int64_t values_ = 0;  // of the row at hand
  int depth_ = 0;
};

}  // namespace hone
