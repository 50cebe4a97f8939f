#include "data/arrow/arrow_schema.h"

#include <algorithm>

#include "core/error.h"
#include "core/unicode.h"

namespace hone {
namespace {

constexpr int kDeepestArrowSchema = 64;
constexpr std::string_view kDamaged = "damaged schema";

void expect(bool condition) {
  if (!condition) throw DamagedArrow{kDamaged};
}

int byte_width(std::int32_t bits) {
  expect(bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 || bits == 256);
  return bits / 8;
}

TimeUnit unit_of(arrow::TimeUnit unit) {
  switch (unit) {
    case arrow::TimeUnit::kSecond:
      return TimeUnit::kSeconds;
    case arrow::TimeUnit::kMillisecond:
      return TimeUnit::kMilliseconds;
    case arrow::TimeUnit::kMicrosecond:
      return TimeUnit::kMicroseconds;
    case arrow::TimeUnit::kNanosecond:
      return TimeUnit::kNanoseconds;
  }
  throw DamagedArrow{kDamaged};
}

// Returns the size of a value in bytes.
int float_width(arrow::Precision precision) {
  switch (precision) {
    case arrow::Precision::kHalf:
      return 2;
    case arrow::Precision::kSingle:
      return 4;
    case arrow::Precision::kDouble:
      return 8;
  }
  throw DamagedArrow{kDamaged};
}

// Returns the size of a value in bytes; that of the longest unit if the unit is unknown.
int interval_width(arrow::IntervalUnit unit) {
  if (unit == arrow::IntervalUnit::kYearMonth) return 4;
  return unit == arrow::IntervalUnit::kDayTime ? 8 : 16;
}

// Reads `type`, the table that describes field.type.
void read_type(const FlatTable& type, ArrowField& field) {
  switch (field.type) {
    case arrow::Type::kInt:
      field.width = byte_width(type.number<std::int32_t>(arrow::Int::kBitWidth));
      expect(field.width <= 8);
      field.is_signed = type.number<std::uint8_t>(arrow::Int::kIsSigned) != 0;
      return;
    case arrow::Type::kFloatingPoint:
      field.width = float_width(type.number<arrow::Precision>(arrow::FloatingPoint::kPrecision));
      return;
    case arrow::Type::kDecimal:
      field.scale = type.number<std::int32_t>(arrow::Decimal::kScale);
      field.width = byte_width(type.number<std::int32_t>(arrow::Decimal::kBitWidth, arrow::Decimal::kDefaultBitWidth));
      return;
    case arrow::Type::kDate:
      field.date_in_days =
          type.number<arrow::DateUnit>(arrow::Date::kUnit, arrow::Date::kDefaultUnit) == arrow::DateUnit::kDay;
      field.width = field.date_in_days ? 4 : 8;
      return;
    case arrow::Type::kTime:
      field.unit = unit_of(type.number<arrow::TimeUnit>(arrow::Time::kUnit, arrow::Time::kDefaultUnit));
      field.width = byte_width(type.number<std::int32_t>(arrow::Time::kBitWidth, arrow::Time::kDefaultBitWidth));
      expect(field.width == 4 || field.width == 8);
      return;
    case arrow::Type::kTimestamp:
      field.unit = unit_of(type.number<arrow::TimeUnit>(arrow::Timestamp::kUnit));
      field.is_utc = !type.text(arrow::Timestamp::kTimezone).empty();
      field.width = 8;
      return;
    case arrow::Type::kDuration:
      field.width = 8;
      return;
    case arrow::Type::kInterval:
      field.width = interval_width(type.number<arrow::IntervalUnit>(arrow::Interval::kUnit));
      return;
    case arrow::Type::kFixedSizeBinary:
      field.width = type.number<std::int32_t>(arrow::FixedSizeBinary::kByteWidth);
      expect(field.width >= 0);
      return;
    case arrow::Type::kFixedSizeList:
      field.list_size = type.number<std::int32_t>(arrow::FixedSizeList::kListSize);
      expect(field.list_size >= 0);
      return;
    default:
      return;
  }
}

ArrowField read_field(const FlatTable& table, int depth, const std::string& where) {
  expect(depth < kDeepestArrowSchema);
  ArrowField field;
  field.name = replace_invalid_utf8(table.text(arrow::Field::kName));
  field.type = table.number<arrow::Type>(arrow::Field::kTypeType);
  if (field.type == arrow::Type::kNone || field.type == arrow::Type::kUnion ||
      field.type == arrow::Type::kRunEndEncoded || field.type >= arrow::Type::kBinaryView) {
    const char* kind = field.type == arrow::Type::kUnion           ? "a union"
                       : field.type == arrow::Type::kRunEndEncoded ? "run-end encoded"
                                                                   : "a view or of a newer type";
    throw Error(where, text_of("the column '", field.name, "' is ", kind, ", which is not supported"),
                "write it as a plain type");
  }
  read_type(table.needed_table(arrow::Field::kType), field);
  if (const auto dictionary = table.table(arrow::Field::kDictionary)) {
    field.dictionary = dictionary->number<std::int64_t>(arrow::DictionaryEncoding::kId);
    if (const auto index = dictionary->table(arrow::DictionaryEncoding::kIndexType)) {
      field.index_width = byte_width(index->number<std::int32_t>(arrow::Int::kBitWidth));
      expect(field.index_width <= 8);
      field.index_is_signed = index->number<std::uint8_t>(arrow::Int::kIsSigned) != 0;
    }
  }
  const FlatVector children = table.vector(arrow::Field::kChildren, arrow::kOffsetBytes);
  for (std::size_t i = 0; i < children.size(); ++i) {
    field.fields.push_back(read_field(children.table(i), depth + 1, where));
  }
  const bool is_list = field.type == arrow::Type::kList || field.type == arrow::Type::kLargeList ||
                       field.type == arrow::Type::kFixedSizeList || field.type == arrow::Type::kMap;
  expect(is_list ? field.fields.size() == 1 : field.type == arrow::Type::kStruct || field.fields.empty());
  return field;
}

}  // namespace

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema, const std::string& where) {
  if (schema.number<arrow::Endianness>(arrow::Schema::kEndianness) != arrow::Endianness::kLittle)
    throw Error(where, "is big-endian, which is not supported");
  std::vector<ArrowField> fields;
  const FlatVector tables = schema.vector(arrow::Schema::kFields, arrow::kOffsetBytes);
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
