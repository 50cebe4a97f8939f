// Reads the columns (schema) of an Arrow file or stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/arrow/arrow_format.h"
#include "data/arrow/flatbuffer.h"
#include "data/cells.h"

namespace hone {

// A column, or a child of one.
struct ArrowField {
  std::string name;
  arrow::Type type = arrow::Type::kNone;
  int width = 0;  // bytes of a value if they are fixed; 0 for a boolean
  bool is_signed = true;
  int scale = 0;      // decimals: digits after the decimal point
  int list_size = 0;  // fixed-size lists: items of a list
  TimeUnit unit = TimeUnit::kSeconds;
  bool is_utc = false;
  bool date_in_days = false;
  std::vector<ArrowField> fields;
  // Set if the values are indices into the dictionary of this id; `type` and the other members then describe the
  // dictionary's values.
  std::optional<std::int64_t> dictionary;
  int index_width = 4;
  bool index_is_signed = true;
};

// Throws DamagedArrow, or Error that begins with `where` if a type is not supported.
[[nodiscard]] std::vector<ArrowField> read_arrow_schema(const FlatTable& schema, const std::string& where);

}  // namespace hone
