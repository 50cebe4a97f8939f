#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "core/unicode.h"
#include "data/cells.h"
#include "data/parquet/column_cursor.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

std::string big_endian_of(const ParquetNode& leaf, const ParquetValue& value) {
  if (leaf.type == parquet::Type::kByteArray || leaf.type == parquet::Type::kFixedLenByteArray)
    return std::string(value.bytes);
  std::string bytes(sizeof value.integer, '\0');
  std::memcpy(bytes.data(), &value.integer, bytes.size());
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

// The deprecated INT96 timestamps: nanoseconds of the day, then the Julian day.
std::string int96_text(std::string_view bytes) {
  constexpr std::int64_t kJulianDayOfEpoch = 2'440'588;
  std::int64_t nanoseconds = 0;
  std::int32_t julian_day = 0;
  std::memcpy(&nanoseconds, bytes.data(), sizeof nanoseconds);
  std::memcpy(&julian_day, bytes.data() + sizeof nanoseconds, sizeof julian_day);
  return date_text(julian_day - kJulianDayOfEpoch) + "T" + time_text(nanoseconds, TimeUnit::kNanoseconds);
}

std::string uuid_text(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[static_cast<unsigned char>(bytes[i]) >> 4];
    text += kDigits[static_cast<unsigned char>(bytes[i]) & 15];
  }
  return text;
}

Json plain_cell(const ParquetNode& leaf, const ParquetValue& value) {
  switch (leaf.type) {
    case parquet::Type::kBoolean:
      return value.integer != 0;
    case parquet::Type::kInt32:
    case parquet::Type::kInt64:
      return value.integer;
    case parquet::Type::kFloat:
    case parquet::Type::kDouble:
      return real_cell(value.real);
    case parquet::Type::kInt96:
      return int96_text(value.bytes);
    case parquet::Type::kByteArray:
    case parquet::Type::kFixedLenByteArray:
      break;
  }
  return bytes_cell(value.bytes);
}

bool is_integer(const ParquetNode& leaf) {
  return leaf.type == parquet::Type::kInt32 || leaf.type == parquet::Type::kInt64;
}

bool is_bytes(const ParquetNode& leaf) {
  return leaf.type == parquet::Type::kByteArray || leaf.type == parquet::Type::kFixedLenByteArray;
}

// Converts a value. A logical type that does not match the physical type is ignored.
Json cell_of(const ParquetNode& leaf, const ParquetValue& value, std::string& fault) {
  switch (leaf.meaning) {
    case ParquetLogicalType::kText:
      if (is_bytes(leaf)) return text_cell(value.bytes, leaf.name, fault);
      break;
    case ParquetLogicalType::kUnsignedInteger:
      if (leaf.type == parquet::Type::kInt32) return static_cast<std::uint32_t>(value.integer);
      if (leaf.type == parquet::Type::kInt64) return static_cast<std::uint64_t>(value.integer);
      break;
    case ParquetLogicalType::kDecimal:
      if (is_integer(leaf) || (is_bytes(leaf) && value.bytes.size() <= 32)) {
        return decimal_text(big_endian_of(leaf, value), leaf.scale);
      }
      break;
    case ParquetLogicalType::kDate:
      if (leaf.type == parquet::Type::kInt32) return date_text(value.integer);
      break;
    case ParquetLogicalType::kTime:
      if (is_integer(leaf)) return time_text(value.integer, leaf.unit);
      break;
    case ParquetLogicalType::kTimestamp:
      if (leaf.type == parquet::Type::kInt64) return timestamp_text(value.integer, leaf.unit, leaf.is_utc);
      break;
    case ParquetLogicalType::kHalf:
      if (leaf.type == parquet::Type::kFixedLenByteArray && leaf.width == parquet::kFloat16Bytes) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, value.bytes.data(), sizeof bits);
        return real_cell(half_value(bits));
      }
      break;
    case ParquetLogicalType::kUuid:
      if (leaf.type == parquet::Type::kFixedLenByteArray && leaf.width == parquet::kUuidBytes)
        return uuid_text(value.bytes);
      break;
    case ParquetLogicalType::kNothing:
      return nullptr;
    case ParquetLogicalType::kPlain:
      break;
  }
  return plain_cell(leaf, value);
}

class ParquetReader final : public RowReader {
 public:
  explicit ParquetReader(const fs::path& path)
      : file_(path),
        name_(std::make_shared<std::string>(path.string())),
        metadata_(read_parquet_metadata(file_.text(), *name_)) {
    find_leaves(metadata_.root);
    for (const ParquetNode& column : metadata_.root.nodes) names_.push_back(column.name);
    std::sort(names_.begin(), names_.end());
    const auto twice = std::adjacent_find(names_.begin(), names_.end());
    if (twice != names_.end()) throw Error(*name_, text_of("has two columns '", *twice, "'"));
  }

  void set_filter(const RowFilter& filter) override {
    std::vector<const ParquetNode*> wanted = {flat_column(filter.key_column)};
    for (const std::string& column : filter.columns) {
      if (column != filter.key_column) wanted.push_back(flat_column(column));
    }
    // All columns are read; the caller reports what is missing.
    if (std::ranges::find(wanted, nullptr) != wanted.end()) return;
    wanted_ = std::move(wanted);
    key_ = filter.key;
  }

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (begin_row()) {
      place = {name_, "row", ++number_};
      if (!wanted_.empty() && !is_wanted()) continue;
      std::string fault;
      fault_ = &fault;
      values_ = 0;
      if (wanted_.empty()) {
        row = read_group(metadata_.root);
        check_row_ends();
      } else {
        row = read_wanted();
      }
      if (fault.empty() && row.empty()) fault = "no columns";
      if (fault.empty()) return true;
      bad.add(place, fault);
    }
    return false;
  }

 private:
  // Returns the column of that name if each row has exactly one value or null for it, otherwise nullptr.
  [[nodiscard]] const ParquetNode* flat_column(const std::string& name) const {
    const auto found = std::ranges::find(metadata_.root.nodes, name, &ParquetNode::name);
    if (found == metadata_.root.nodes.end() || found->shape != ParquetNode::Shape::kLeaf || found->repeat != 0) {
      return nullptr;
    }
    return &*found;
  }

  // Takes the key of the current row and returns true if it passes the filter.
  [[nodiscard]] bool is_wanted() {
    const ParquetValue* value = cursors_[wanted_[0]->first_leaf].take();
    if (value != nullptr && is_bytes(*wanted_[0]) && value->bytes == key_) return true;
    ++passed_;
    return false;
  }

  [[nodiscard]] Json read_wanted() {
    Json row = {{wanted_[0]->name, key_}};
    for (std::size_t i = 1; i < wanted_.size(); ++i) {
      cursors_[wanted_[i]->first_leaf].skip(passed_);
      row[wanted_[i]->name] = read(*wanted_[i]);
    }
    passed_ = 0;
    return row;
  }

  void find_leaves(const ParquetNode& node) {
    if (node.shape == ParquetNode::Shape::kLeaf) leaves_.push_back(&node);
    for (const ParquetNode& below : node.nodes) find_leaves(below);
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(text_of(*name_, " row ", number_), what, "is the file whole? fetch it again");
  }

  bool begin_row() {
    while (rows_left_ == 0) {
      for (ColumnCursor& cursor : cursors_) {
        if (wanted_.empty() && !cursor.at_end()) fail("a column has more values than the others");
      }
      passed_ = 0;
      if (next_group_ == metadata_.row_groups.size()) return false;
      const ParquetRowGroup& group = metadata_.row_groups[next_group_++];
      cursors_.clear();
      cursors_.reserve(leaves_.size());
      for (std::size_t i = 0; i < leaves_.size(); ++i) {
        cursors_.emplace_back(file_.text(), group.columns[i], *leaves_[i], *name_);
      }
      rows_left_ = leaves_.empty() ? 0 : group.rows;
    }
    --rows_left_;
    return true;
  }

  // Throws if a column is neither at the start of a record nor at its end.
  void check_row_ends() {
    for (ColumnCursor& cursor : cursors_) {
      if (rows_left_ > 0 ? cursor.repetition() != 0 : !cursor.at_end()) fail("the columns do not end together");
    }
  }

  void count_value() {
    if (++values_ > kMostValuesARow) fail(text_of("holds more than ", format_count(kMostValuesARow), " values"));
  }

  // Takes a null, which has one entry in each column at or below the node.
  void take_null(const ParquetNode& node) {
    for (std::size_t leaf = node.first_leaf; leaf < node.end_leaf; ++leaf) {
      count_value();
      (void)cursors_[leaf].take();
    }
  }

  Json read_child(const ParquetNode& node) {
    return node.repetition == parquet::FieldRepetitionType::kRepeated ? read_repeated(node) : read(node);
  }

  // Reads a node that is required or optional.
  Json read(const ParquetNode& node) {
    if (node.first_leaf == node.end_leaf) return nullptr;
    if (cursors_[node.first_leaf].definition() < node.definition) {
      take_null(node);
      return nullptr;
    }
    return read_body(node);
  }

  Json read_repeated(const ParquetNode& node) {
    Json list = Json::array();
    if (node.first_leaf == node.end_leaf) return list;
    ColumnCursor& first = cursors_[node.first_leaf];
    if (first.definition() < node.definition) {
      take_null(node);
      return list;
    }
    do {
      list.push_back(node.holds_elements ? read_child(node.nodes[0]) : read_body(node));
      if (!first.at_end() && first.repetition() > node.repeat) fail("a list does not end where it should");
    } while (!first.at_end() && first.repetition() == node.repeat);
    return list;
  }

  // Reads a node that is present.
  Json read_body(const ParquetNode& node) {
    if (node.shape == ParquetNode::Shape::kList) return read_repeated(node.nodes[0]);
    if (node.shape == ParquetNode::Shape::kGroup) return read_group(node);
    count_value();
    const ParquetValue* value = cursors_[node.first_leaf].take();
    return value == nullptr ? Json(nullptr) : cell_of(node, *value, *fault_);
  }

  Json read_group(const ParquetNode& node) {
    Json object = Json::object();
    auto& items = object.get_ref<Json::object_t&>();
    items.reserve(node.nodes.size());
    for (const ParquetNode& child : node.nodes) items.emplace_back(child.name, read_child(child));
    return object;
  }

  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  ParquetMetadata metadata_;
  std::vector<std::string> names_;
  std::vector<const ParquetNode*> leaves_;
  std::vector<ColumnCursor> cursors_;  // [leaves], for the current row group
  std::size_t next_group_ = 0;
  std::int64_t rows_left_ = 0;  // in the current row group
  std::int64_t number_ = 0;
  std::int64_t values_ = 0;  // values of the current row
  std::string* fault_ = nullptr;
  std::vector<const ParquetNode*> wanted_;  // the key, then the other columns; empty: all
  std::string key_;
  std::int64_t passed_ = 0;  // rows of the row group whose other columns were not read
};

}  // namespace

std::unique_ptr<RowReader> make_parquet_reader(const fs::path& path) { return std::make_unique<ParquetReader>(path); }

}  // namespace hone
