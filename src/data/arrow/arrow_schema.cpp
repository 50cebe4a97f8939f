#include "data/arrow/arrow_schema.h"

#include <algorithm>

#include "core/error.h"
#include "core/unicode.h"

namespace hone {
namespace {

constexpr int kDeepestSchema = 64;
constexpr std::string_view kDamaged = "damaged schema";

void expect(bool condition) {
  if (!condition) throw DamagedArrow{kDamaged};
}

int byte_width(std::int32_t bits) {
  expect(bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 || bits == 256);
  return bits / 8;
}

TimeUnit unit_of(std::int16_t unit) {
  switch (unit) {
    case 0:
      return TimeUnit::seconds;
    case 1:
      return TimeUnit::milliseconds;
    case 2:
      return TimeUnit::microseconds;
    case 3:
      return TimeUnit::nanoseconds;
    default:
      throw DamagedArrow{kDamaged};
  }
}

int float_width(std::int16_t precision) {
  switch (precision) {
    case 0:
      return 2;
    case 1:
      return 4;
    case 2:
      return 8;
    default:
      throw DamagedArrow{kDamaged};
  }
}

// The numbers below are the field numbers of each type's table in Schema.fbs.
void read_type(const FlatTable& type, ArrowField& field) {
  switch (field.type) {
    case ArrowType::integer:
      field.width = byte_width(type.number<std::int32_t>(0));
      expect(field.width <= 8);
      field.is_signed = type.number<std::uint8_t>(1) != 0;
      return;
    case ArrowType::floating:
      field.width = float_width(type.number<std::int16_t>(0));
      return;
    case ArrowType::decimal:
      field.scale = type.number<std::int32_t>(1);
      field.width = byte_width(type.number<std::int32_t>(2, 128));
      return;
    case ArrowType::date:
      field.date_in_days = type.number<std::int16_t>(0, 1) == 0;
      field.width = field.date_in_days ? 4 : 8;
      return;
    case ArrowType::time:
      field.unit = unit_of(type.number<std::int16_t>(0, 1));
      field.width = byte_width(type.number<std::int32_t>(1, 32));
      expect(field.width == 4 || field.width == 8);
      return;
    case ArrowType::timestamp:
      field.unit = unit_of(type.number<std::int16_t>(0));
      field.is_utc = !type.text(1).empty();
      field.width = 8;
      return;
    case ArrowType::duration:
      field.width = 8;
      return;
    case ArrowType::interval: {
      const auto unit = type.number<std::int16_t>(0);
      field.width = unit == 0 ? 4 : unit == 1 ? 8 : 16;
      return;
    }
    case ArrowType::fixed_binary:
      field.width = type.number<std::int32_t>(0);
      expect(field.width >= 0);
      return;
    case ArrowType::fixed_list:
      field.list_size = type.number<std::int32_t>(0);
      expect(field.list_size >= 0);
      return;
    default:
      return;
  }
}

ArrowField read_field(const FlatTable& table, int depth, const std::string& where) {
  expect(depth < kDeepestSchema);
  // Fields of Field (Schema.fbs): 0 name, 2 type tag, 3 type, 4 dictionary, 5 children.
  ArrowField field;
  field.name = replace_invalid_utf8(table.text(0));
  const auto type = table.number<std::uint8_t>(2);
  field.type = static_cast<ArrowType>(type);
  if (type == 0 || field.type == ArrowType::tagged_union || field.type == ArrowType::run_end_encoded ||
      type >= static_cast<std::uint8_t>(ArrowType::binary_view)) {
    const char* kind = field.type == ArrowType::tagged_union      ? "a union"
                       : field.type == ArrowType::run_end_encoded ? "run-end encoded"
                                                                  : "a view or of a newer type";
    throw Error(where, text_of("the column '", field.name, "' is ", kind, ", which is not supported"),
                "write it as a plain type");
  }
  read_type(table.needed_table(3), field);
  if (const auto dictionary = table.table(4)) {
    field.dictionary = dictionary->number<std::int64_t>(0);
    if (const auto index = dictionary->table(1)) {
      field.index_width = byte_width(index->number<std::int32_t>(0));
      expect(field.index_width <= 8);
      field.index_is_signed = index->number<std::uint8_t>(1) != 0;
    }
  }
  const FlatVector children = table.vector(5, 4);
  for (std::size_t i = 0; i < children.size(); ++i) {
    field.fields.push_back(read_field(children.table(i), depth + 1, where));
  }
  const bool is_list = field.type == ArrowType::list || field.type == ArrowType::large_list ||
                       field.type == ArrowType::fixed_list || field.type == ArrowType::map;
  expect(is_list ? field.fields.size() == 1 : field.type == ArrowType::structure || field.fields.empty());
  return field;
}

}  // namespace

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema, const std::string& where) {
  if (schema.number<std::int16_t>(0) != 0) throw Error(where, "is big-endian, which is not supported");
  std::vector<ArrowField> fields;
  const FlatVector tables = schema.vector(1, 4);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    fields.push_back(read_field(tables.table(i), 0, where));
    names.push_back(fields.back().name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw Error(where, text_of("has two columns '", *twice, "'"));
  return fields;
}

}  // namespace hone
