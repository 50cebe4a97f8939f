// Reads the columns (schema) of an Arrow file or stream.
// Source: https://github.com/apache/arrow/blob/main/format/Schema.fbs
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/arrow/flatbuffer.h"
#include "data/cells.h"

namespace hone {

// Values as in the union `Type` of Schema.fbs.
enum class ArrowType : std::uint8_t {
  none,
  null,
  integer,
  floating,
  binary,
  utf8,
  boolean,
  decimal,
  date,
  time,
  timestamp,
  interval,
  list,
  structure,
  tagged_union,
  fixed_binary,
  fixed_list,
  map,
  duration,
  large_binary,
  large_utf8,
  large_list,
  run_end_encoded,
  binary_view,
  utf8_view,
  list_view,
  large_list_view,
};

// A column, or a child of one.
struct ArrowField {
  std::string name;
  ArrowType type = ArrowType::none;
  int width = 0;  // bytes of a value if they are fixed; 0 for a boolean
  bool is_signed = true;
  int scale = 0;      // decimals: digits after the decimal point
  int list_size = 0;  // fixed-size lists: items of a list
  TimeUnit unit = TimeUnit::seconds;
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
