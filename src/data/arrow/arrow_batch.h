// Reads Arrow record batches. Values stay in buffers of the mapped file, or in memory if they were compressed.
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

// One column of a batch, with the buffers of its type.
struct ArrowArray {
  const ArrowField* field = nullptr;
  std::int64_t length = 0;    // number of values
  std::string_view validity;  // one bit for each value; empty: no value is null
  std::string_view offsets;   // [length + 1] offsets into `values` or `arrays`; empty if the type has none
  std::string_view values;
  // The children of a list or struct.
  std::vector<ArrowArray> arrays;
};

// The columns of a record batch.
struct ArrowBatch {
  std::int64_t length = 0;
  std::vector<ArrowArray> columns;
  std::shared_ptr<const void> storage;  // keeps decompressed buffers alive
};

// Dictionary values by dictionary id: batches of one column, one after another.
using ArrowDictionaries = std::map<std::int64_t, std::vector<ArrowBatch>>;

// Reads the batch that `header` (a RecordBatch) and `body` describe. Throws DamagedArrow if a buffer is outside of the
// body or too small for its array.
[[nodiscard]] ArrowBatch read_arrow_batch(const std::vector<ArrowField>& fields, const FlatTable& header,
                                          std::string_view body);

// Converts cells to JSON. Throws DamagedArrow if an offset or an index is out of range.
class ArrowCells {
 public:
  explicit ArrowCells(const ArrowDictionaries& dictionaries) : dictionaries_(dictionaries) {}
  // Returns row `index` of a batch as an object. A problem with its content, but not with the file, is described in
  // `fault`.
  [[nodiscard]] Json row(const ArrowBatch& batch, std::int64_t index, std::string& fault);

 private:
  [[nodiscard]] Json cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json plain_cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json fixed_width_cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json bytes_or_text_cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json struct_cell(const ArrowArray& array, std::int64_t index);
  [[nodiscard]] Json list_cell(const ArrowArray& items, std::int64_t begin, std::int64_t end);
  [[nodiscard]] Json dictionary_cell(std::int64_t dictionary, std::int64_t index);

  const ArrowDictionaries& dictionaries_;
  std::string* fault_ = nullptr;
  std::int64_t values_ = 0;  // values read of the current row
  int depth_ = 0;
};

}  // namespace hone
