#include "data/arrow/arrow_batch.h"

#include <lz4frame.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "core/json_value.h"
#include "data/cells.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestBatch = std::int64_t{1} << 40;
// Largest ratio of decompressed to compressed size; no codec exceeds it.
constexpr std::size_t kMostBufferRatio = 32'768;
constexpr std::size_t kSmallBuffer = std::size_t{1} << 20;

void expect(bool condition, std::string_view what) {
  if (!condition) throw DamagedArrow{what};
}

template <class T>
T load(std::string_view bytes, std::int64_t index) {
  return FlatTable::load<T>(bytes, static_cast<std::size_t>(index) * sizeof(T));
}

// Loads an integer of `width` bytes, zero-extended or sign-extended.
std::int64_t load_integer(std::string_view bytes, std::int64_t index, int width, bool is_signed) {
  if (width == 8) return load<std::int64_t>(bytes, index);
  if (is_signed) {
    if (width == 4) return load<std::int32_t>(bytes, index);
    return width == 2 ? load<std::int16_t>(bytes, index) : load<std::int8_t>(bytes, index);
  }
  if (width == 4) return load<std::uint32_t>(bytes, index);
  return width == 2 ? load<std::uint16_t>(bytes, index) : load<std::uint8_t>(bytes, index);
}

bool has_wide_offsets(arrow::Type type) {
  return type == arrow::Type::kLargeBinary || type == arrow::Type::kLargeUtf8 || type == arrow::Type::kLargeList;
}

bool is_bytes(arrow::Type type) {
  return type == arrow::Type::kBinary || type == arrow::Type::kUtf8 || type == arrow::Type::kLargeBinary ||
         type == arrow::Type::kLargeUtf8;
}

bool has_offsets(arrow::Type type) {
  return is_bytes(type) || type == arrow::Type::kList || type == arrow::Type::kLargeList || type == arrow::Type::kMap;
}

bool bit(std::string_view bits, std::int64_t index) {
  return (FlatTable::load<std::uint8_t>(bits, static_cast<std::size_t>(index / 8)) >> (index % 8) & 1) != 0;
}

class BatchBuilder {
 public:
  BatchBuilder(const FlatTable& header, std::string_view body)
      : nodes_(header.vector(arrow::RecordBatch::kNodes, arrow::FieldNode::kBytes)),
        buffers_(header.vector(arrow::RecordBatch::kBuffers, arrow::Buffer::kBytes)),
        body_(body) {
    if (const auto compression = header.table(arrow::RecordBatch::kCompression)) {
      codec_ = compression->number<arrow::CompressionType>(arrow::BodyCompression::kCodec);
      const auto method = compression->number<arrow::BodyCompressionMethod>(arrow::BodyCompression::kMethod);
      const bool is_known = codec_ == arrow::CompressionType::kLz4Frame || codec_ == arrow::CompressionType::kZstd;
      expect(is_known && method == arrow::BodyCompressionMethod::kBuffer, "unsupported compression");
    }
  }

  ArrowArray take(const ArrowField& field) {
    expect(next_node_ < nodes_.size(), "a batch has fewer columns than the schema");
    ArrowArray array{.field = &field};
    array.length = nodes_.number<std::int64_t>(next_node_, arrow::FieldNode::kLength);
    const auto nulls = nodes_.number<std::int64_t>(next_node_, arrow::FieldNode::kNullCount);
    ++next_node_;
    expect(array.length >= 0 && array.length <= kLongestBatch, "a column has an impossible length");
    if (field.type == arrow::Type::kNull && !field.dictionary) return array;
    array.validity = take_buffer();
    if (nulls == 0) array.validity = {};
    if (!array.validity.empty()) need(array.validity, (array.length + 7) / 8);
    if (field.dictionary) {
      array.values = take_buffer();
      need(array.values, array.length * field.index_width);
      return array;
    }
    take_values(field, array);
    return array;
  }

  std::shared_ptr<const void> storage() { return storage_; }

 private:
  static void need(std::string_view buffer, std::int64_t bytes) {
    expect(static_cast<std::int64_t>(buffer.size()) >= bytes, "a buffer is too small");
  }

  void take_values(const ArrowField& field, ArrowArray& array) {
    if (has_offsets(field.type)) {
      array.offsets = take_buffer();
      if (array.length > 0) need(array.offsets, (array.length + 1) * (has_wide_offsets(field.type) ? 8 : 4));
      if (is_bytes(field.type)) array.values = take_buffer();
    } else if (field.type == arrow::Type::kBool) {
      array.values = take_buffer();
      need(array.values, (array.length + 7) / 8);
    } else if (field.type != arrow::Type::kStruct && field.type != arrow::Type::kFixedSizeList) {
      array.values = take_buffer();
      expect(field.width == 0 || array.length <= kLongestBatch / field.width, "a column has an impossible length");
      need(array.values, array.length * field.width);
    }
    for (const ArrowField& below : field.fields) {
      array.arrays.push_back(take(below));
      const std::int64_t length = array.arrays.back().length;
      if (field.type == arrow::Type::kStruct) expect(length >= array.length, "a field is shorter than its struct");
      if (field.type == arrow::Type::kFixedSizeList && field.list_size > 0) {
        expect(length / field.list_size >= array.length, "a list is shorter than it should be");
      }
    }
  }

  std::string_view take_buffer() {
    expect(next_buffer_ < buffers_.size(), "a batch has fewer buffers than the schema");
    const auto offset = buffers_.number<std::int64_t>(next_buffer_, arrow::Buffer::kOffset);
    const auto size = buffers_.number<std::int64_t>(next_buffer_, arrow::Buffer::kLength);
    ++next_buffer_;
    const auto body_size = static_cast<std::int64_t>(body_.size());
    expect(offset >= 0 && size >= 0 && offset <= body_size && size <= body_size - offset,
           "a buffer is outside of its batch");
    const std::string_view stored = body_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
    return !codec_ || stored.empty() ? stored : decompressed(stored);
  }

  // The decompressed size precedes the buffer.
  std::string_view decompressed(std::string_view stored) {
    const auto size = FlatTable::load<std::int64_t>(stored, 0);
    stored.remove_prefix(sizeof size);
    if (size == arrow::kUncompressedBuffer) return stored;
    const bool is_possible = size >= 0 && (static_cast<std::size_t>(size) <= kSmallBuffer ||
                                           static_cast<std::size_t>(size) / kMostBufferRatio <= stored.size());
    expect(is_possible, "a buffer has an impossible size");
    std::string& plain = storage_->emplace_back(static_cast<std::size_t>(size), '\0');
    const bool whole = codec_ == arrow::CompressionType::kLz4Frame
                           ? lz4(stored, plain)
                           : ZSTD_decompress(plain.data(), plain.size(), stored.data(), stored.size()) == plain.size();
    expect(whole, "a buffer cannot be decompressed");
    return plain;
  }

  static bool lz4(std::string_view stored, std::string& plain) {
    LZ4F_dctx* context = nullptr;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0U) throw std::bad_alloc();
    const std::unique_ptr<LZ4F_dctx, LZ4F_errorCode_t (*)(LZ4F_dctx*)> owner(context, LZ4F_freeDecompressionContext);
    std::size_t done = 0;
    while (true) {
      std::size_t out = plain.size() - done;
      std::size_t in = stored.size();
      const std::size_t wanted = LZ4F_decompress(context, plain.data() + done, &out, stored.data(), &in, nullptr);
      if (LZ4F_isError(wanted) != 0U) return false;
      done += out;
      stored.remove_prefix(in);
      if (wanted == 0) return done == plain.size();
      if (in == 0 && out == 0) return false;
    }
  }

  FlatVector nodes_;
  FlatVector buffers_;
  std::string_view body_;
  std::optional<arrow::CompressionType> codec_;  // unset: not compressed
  std::size_t next_node_ = 0;
  std::size_t next_buffer_ = 0;
  std::shared_ptr<std::list<std::string>> storage_ = std::make_shared<std::list<std::string>>();
};

// Returns where item `index` of a column of texts, lists or maps begins and ends.
std::pair<std::int64_t, std::int64_t> offsets_of(const ArrowArray& array, std::int64_t index) {
  const int width = has_wide_offsets(array.field->type) ? 8 : 4;
  return {load_integer(array.offsets, index, width, true), load_integer(array.offsets, index + 1, width, true)};
}

}  // namespace

ArrowBatch read_arrow_batch(const std::vector<ArrowField>& fields, const FlatTable& header, std::string_view body) {
  BatchBuilder builder(header, body);
  ArrowBatch batch{.length = header.number<std::int64_t>(arrow::RecordBatch::kLength)};
  expect(batch.length >= 0 && batch.length <= kLongestBatch, "a batch has an impossible length");
  for (const ArrowField& field : fields) {
    batch.columns.push_back(builder.take(field));
    expect(batch.columns.back().length >= batch.length, "a column is shorter than its batch");
  }
  batch.storage = builder.storage();
  return batch;
}

Json ArrowCells::row(const ArrowBatch& batch, std::int64_t index, std::string& fault) {
  fault_ = &fault;
  values_ = 0;
  depth_ = 0;
  Json object = Json::object();
  auto& items = object.get_ref<Json::object_t&>();
  items.reserve(batch.columns.size());
  for (const ArrowArray& column : batch.columns) items.emplace_back(column.field->name, cell(column, index));
  return object;
}

Json ArrowCells::cell(const ArrowArray& array, std::int64_t index) {
  expect(index >= 0 && index < array.length, "an index is outside of its column");
  expect(++values_ <= kMostValuesARow, "a row holds too many values");
  if (!array.validity.empty() && !bit(array.validity, index)) return nullptr;
  const ArrowField& field = *array.field;
  if (!field.dictionary) return plain_cell(array, index);
  return dictionary_cell(*field.dictionary,
                         load_integer(array.values, index, field.index_width, field.index_is_signed));
}

Json ArrowCells::dictionary_cell(std::int64_t dictionary, std::int64_t index) {
  expect(++depth_ < 64, "dictionaries refer to each other");
  const auto found = dictionaries_.find(dictionary);
  expect(found != dictionaries_.end(), "a dictionary is missing");
  expect(index >= 0, "an index is outside of its dictionary");
  for (const ArrowBatch& part : found->second) {
    if (index < part.length) {
      Json value = cell(part.columns.at(0), index);
      --depth_;
      return value;
    }
    index -= part.length;
  }
  throw DamagedArrow{"an index is outside of its dictionary"};
}

Json ArrowCells::list_cell(const ArrowArray& items, std::int64_t begin, std::int64_t end) {
  expect(begin >= 0 && begin <= end && end <= items.length, "a list is outside of its items");
  Json list = Json::array();
  for (std::int64_t i = begin; i < end; ++i) list.push_back(cell(items, i));
  return list;
}

Json ArrowCells::fixed_width_cell(const ArrowArray& array, std::int64_t index) {
  const ArrowField& field = *array.field;
  const auto integer = [&] { return load_integer(array.values, index, field.width, field.is_signed); };
  const auto bytes = [&] {
    const auto width = static_cast<std::size_t>(field.width);
    return array.values.substr(static_cast<std::size_t>(index) * width, width);
  };
  switch (field.type) {
    case arrow::Type::kInt:
      if (!field.is_signed) return static_cast<std::uint64_t>(integer());
      return integer();
    case arrow::Type::kDuration:
      return load<std::int64_t>(array.values, index);
    case arrow::Type::kFloatingPoint:
      if (field.width == 2) return real_cell(half_value(load<std::uint16_t>(array.values, index)));
      return real_cell(field.width == 4 ? load<float>(array.values, index) : load<double>(array.values, index));
    case arrow::Type::kBool:
      return bit(array.values, index);
    case arrow::Type::kDecimal: {
      std::string digits(bytes());
      std::reverse(digits.begin(), digits.end());
      return decimal_text(digits, field.scale);
    }
    case arrow::Type::kDate: {
      constexpr std::int64_t kMillisecondsADay = 86'400'000;
      if (field.date_in_days) return date_text(load<std::int32_t>(array.values, index));
      return date_text(load<std::int64_t>(array.values, index) / kMillisecondsADay);
    }
    case arrow::Type::kTime:
      return time_text(load_integer(array.values, index, field.width, true), field.unit);
    case arrow::Type::kTimestamp:
      return timestamp_text(load<std::int64_t>(array.values, index), field.unit, field.is_utc);
    case arrow::Type::kInterval:
    case arrow::Type::kFixedSizeBinary:
      return bytes_cell(bytes());
    default:
      return nullptr;
  }
}

Json ArrowCells::bytes_or_text_cell(const ArrowArray& array, std::int64_t index) {
  const auto [begin, end] = offsets_of(array, index);
  expect(begin >= 0 && begin <= end && end <= static_cast<std::int64_t>(array.values.size()),
         "a text is outside of its column");
  const std::string_view bytes =
      array.values.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  const bool is_text = array.field->type == arrow::Type::kUtf8 || array.field->type == arrow::Type::kLargeUtf8;
  return is_text ? text_cell(bytes, array.field->name, *fault_) : bytes_cell(bytes);
}

Json ArrowCells::struct_cell(const ArrowArray& array, std::int64_t index) {
  Json object = Json::object();
  auto& items = object.get_ref<Json::object_t&>();
  items.reserve(array.arrays.size());
  for (const ArrowArray& below : array.arrays) items.emplace_back(below.field->name, cell(below, index));
  return object;
}

Json ArrowCells::plain_cell(const ArrowArray& array, std::int64_t index) {
  const ArrowField& field = *array.field;
  switch (field.type) {
    case arrow::Type::kBinary:
    case arrow::Type::kLargeBinary:
    case arrow::Type::kUtf8:
    case arrow::Type::kLargeUtf8:
      return bytes_or_text_cell(array, index);
    case arrow::Type::kList:
    case arrow::Type::kLargeList:
    case arrow::Type::kMap: {
      const auto [begin, end] = offsets_of(array, index);
      return list_cell(array.arrays[0], begin, end);
    }
    case arrow::Type::kFixedSizeList:
      return list_cell(array.arrays[0], index * field.list_size, (index + 1) * field.list_size);
    case arrow::Type::kStruct:
      return struct_cell(array, index);
    default:
      return fixed_width_cell(array, index);
  }
}

}  // namespace hone
