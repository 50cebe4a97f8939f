// The columns of an Arrow file or stream.
// Source: https://github.com/apache/arrow/blob/main/format/Schema.fbs
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/arrow/flatbuffer.h"
#include "data/cells.h"

namespace hone {

// Numbered as the format's union.
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

struct ArrowField {
  std::string name;
  ArrowType type = ArrowType::none;
  int width = 0;  // bytes of a value where they are fixed; of a boolean 0
  bool is_signed = true;
  int scale = 0;      // of decimals
  int list_size = 0;  // of fixed lists
  TimeUnit unit = TimeUnit::seconds;
  bool is_utc = false;
  bool date_in_days = false;
  std::vector<ArrowField> fields;
  // Of a column whose values are indices into a dictionary: `type` and the rest are the dictionary's.
  std::optional<std::int64_t> dictionary;
  int index_width = 4;
  bool index_is_signed = true;
};

// Throws DamagedArrow, or Error beginning with `where` for a type that is not supported.
[[nodiscard]] std::vector<ArrowField> read_arrow_schema(const FlatTable& schema, const std::string& where);

}  // namespace hone
