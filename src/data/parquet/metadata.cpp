#include "data/parquet/metadata.h"

#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/unicode.h"
#include "data/file_format.h"
#include "data/parquet/thrift.h"

namespace hone {
namespace {

constexpr int kDeepestParquetSchema = 64;
constexpr auto kNoConvertedType = static_cast<parquet::ConvertedType>(-1);

// An element of the schema, which the file lists depth first.
struct SchemaElement {
  std::int32_t type = -1;  // parquet::Type; negative: a group
  std::int32_t width = 0;
  std::int32_t repetition = 0;  // parquet::FieldRepetitionType
  std::string name;
  std::int32_t children = 0;
  parquet::ConvertedType converted = kNoConvertedType;
  std::int32_t scale = 0;
  int logical = parquet::LogicalType::kNone;  // the member that is set in the union
  int unit = 0;                               // the member that is set in parquet::TimeUnit
  bool is_utc = false;
  bool is_signed = true;
};

void read_logical_type(ThriftReader& in, ThriftField outer, SchemaElement& element) {
  using parquet::LogicalType;
  in.read_struct(outer, [&](ThriftField member) {
    element.logical = member.id;
    in.read_struct(member, [&](ThriftField field) {
      const bool is_time = member.id == LogicalType::kTime || member.id == LogicalType::kTimestamp;
      if (member.id == LogicalType::kDecimal && field.id == parquet::DecimalType::kScale) {
        element.scale = in.integer32(field);
      } else if (is_time && field.id == parquet::TimeType::kIsAdjustedToUtc) {
        element.is_utc = in.boolean(field);
      } else if (is_time && field.id == parquet::TimeType::kUnit) {
        in.read_struct(field, [&](ThriftField unit) {
          element.unit = unit.id;
          return false;
        });
      } else if (member.id == LogicalType::kInteger && field.id == parquet::IntType::kIsSigned) {
        element.is_signed = in.boolean(field);
      } else {
        return false;
      }
      return true;
    });
    return true;
  });
}

SchemaElement read_schema_element(ThriftReader& in, ThriftField outer) {
  SchemaElement element;
  in.read_struct(outer, [&](ThriftField field) {
    switch (field.id) {
      case parquet::SchemaElement::kType:
        element.type = in.integer32(field);
        return true;
      case parquet::SchemaElement::kTypeLength:
        element.width = in.integer32(field);
        return true;
      case parquet::SchemaElement::kRepetitionType:
        element.repetition = in.integer32(field);
        return true;
      case parquet::SchemaElement::kName:
        element.name = replace_invalid_utf8(in.binary(field));
        return true;
      case parquet::SchemaElement::kNumChildren:
        element.children = in.integer32(field);
        return true;
      case parquet::SchemaElement::kConvertedType:
        element.converted = static_cast<parquet::ConvertedType>(in.integer32(field));
        return true;
      case parquet::SchemaElement::kScale:
        element.scale = in.integer32(field);
        return true;
      case parquet::SchemaElement::kLogicalType:
        read_logical_type(in, field, element);
        return true;
      default:
        return false;
    }
  });
  return element;
}

struct LeafMeaning {
  ParquetLogicalType meaning = ParquetLogicalType::kPlain;
  TimeUnit unit = TimeUnit::kMilliseconds;
  bool is_utc = false;
};

LeafMeaning meaning_of(const SchemaElement& element) {
  using parquet::ConvertedType;
  using parquet::LogicalType;
  const TimeUnit unit = element.unit == parquet::TimeUnit::kMillis   ? TimeUnit::kMilliseconds
                        : element.unit == parquet::TimeUnit::kMicros ? TimeUnit::kMicroseconds
                                                                     : TimeUnit::kNanoseconds;
  switch (element.logical) {
    case LogicalType::kString:
    case LogicalType::kEnum:
    case LogicalType::kJson:
      return {.meaning = ParquetLogicalType::kText};
    case LogicalType::kDecimal:
      return {.meaning = ParquetLogicalType::kDecimal};
    case LogicalType::kDate:
      return {.meaning = ParquetLogicalType::kDate};
    case LogicalType::kTime:
      return {.meaning = ParquetLogicalType::kTime, .unit = unit};
    case LogicalType::kTimestamp:
      return {.meaning = ParquetLogicalType::kTimestamp, .unit = unit, .is_utc = element.is_utc};
    case LogicalType::kInteger:
      return {.meaning = element.is_signed ? ParquetLogicalType::kPlain : ParquetLogicalType::kUnsignedInteger};
    case LogicalType::kUnknown:
      return {.meaning = ParquetLogicalType::kNothing};
    case LogicalType::kUuid:
      return {.meaning = ParquetLogicalType::kUuid};
    case LogicalType::kFloat16:
      return {.meaning = ParquetLogicalType::kHalf};
    default:
      break;
  }
  switch (element.converted) {
    case ConvertedType::kUtf8:
    case ConvertedType::kEnum:
    case ConvertedType::kJson:
      return {.meaning = ParquetLogicalType::kText};
    case ConvertedType::kDecimal:
      return {.meaning = ParquetLogicalType::kDecimal};
    case ConvertedType::kDate:
      return {.meaning = ParquetLogicalType::kDate};
    case ConvertedType::kTimeMillis:
      return {.meaning = ParquetLogicalType::kTime, .unit = TimeUnit::kMilliseconds};
    case ConvertedType::kTimeMicros:
      return {.meaning = ParquetLogicalType::kTime, .unit = TimeUnit::kMicroseconds};
    case ConvertedType::kTimestampMillis:
      return {.meaning = ParquetLogicalType::kTimestamp, .unit = TimeUnit::kMilliseconds, .is_utc = true};
    case ConvertedType::kTimestampMicros:
      return {.meaning = ParquetLogicalType::kTimestamp, .unit = TimeUnit::kMicroseconds, .is_utc = true};
    case ConvertedType::kUint8:
    case ConvertedType::kUint16:
    case ConvertedType::kUint32:
    case ConvertedType::kUint64:
      return {.meaning = ParquetLogicalType::kUnsignedInteger};
    default:
      return {};
  }
}

class SchemaBuilder {
 public:
  SchemaBuilder(std::vector<SchemaElement> elements, std::string where)
      : elements_(std::move(elements)), where_(std::move(where)) {}

  ParquetNode build() {
    ParquetNode root = take({}, 0);
    expect(root.shape == ParquetNode::Shape::kGroup && next_ == elements_.size());
    return root;
  }

 private:
  void expect(bool condition) const {
    if (!condition) throw Error(where_, "damaged schema", kFetchAgain);
  }

  ParquetNode take(const ParquetNode& parent, int depth) {
    expect(next_ < elements_.size() && depth < kDeepestParquetSchema);
    const SchemaElement& element = elements_[next_++];
    ParquetNode node{.name = element.name, .definition = parent.definition, .repeat = parent.repeat};
    if (depth > 0) {
      expect(is_value(element.repetition, parquet::FieldRepetitionType::kRepeated));
      node.repetition = static_cast<parquet::FieldRepetitionType>(element.repetition);
    }
    if (node.repetition != parquet::FieldRepetitionType::kRequired) ++node.definition;
    if (node.repetition == parquet::FieldRepetitionType::kRepeated) ++node.repeat;
    node.first_leaf = leaves_;
    if (element.type >= 0 && depth > 0) {
      describe_leaf(element, node);
      ++leaves_;
    } else {
      expect(element.children > 0 || depth == 0);
      node.shape = ParquetNode::Shape::kGroup;
      for (std::int32_t i = 0; i < element.children; ++i) node.nodes.push_back(take(node, depth + 1));
      if (depth > 0) find_list(element, node);
    }
    node.end_leaf = leaves_;
    return node;
  }

  void describe_leaf(const SchemaElement& element, ParquetNode& node) const {
    expect(is_value(element.type, parquet::Type::kFixedLenByteArray) && element.children <= 0);
    const LeafMeaning meaning = meaning_of(element);
    node.type = static_cast<parquet::Type>(element.type);
    node.meaning = meaning.meaning;
    node.unit = meaning.unit;
    node.is_utc = meaning.is_utc;
    node.scale = element.scale;
    node.width = element.width;
    if (node.type == parquet::Type::kInt96) node.width = parquet::kInt96Bytes;
    if (node.type == parquet::Type::kFixedLenByteArray) expect(node.width > 0);
  }

  // Recognizes lists and maps, including the older forms with two levels: parquet-format's LogicalTypes.md,
  // "Backward-compatibility rules". A map is read as the list of its entries.
  static void find_list(const SchemaElement& element, ParquetNode& node) {
    using parquet::ConvertedType;
    using parquet::LogicalType;
    const bool is_map = element.logical == LogicalType::kMap || element.converted == ConvertedType::kMap ||
                        element.converted == ConvertedType::kMapKeyValue;
    const bool is_list = is_map || element.logical == LogicalType::kList || element.converted == ConvertedType::kList;
    if (!is_list || node.nodes.size() != 1) return;
    ParquetNode& repeated = node.nodes[0];
    if (repeated.repetition != parquet::FieldRepetitionType::kRepeated) return;
    node.shape = ParquetNode::Shape::kList;
    repeated.holds_elements = !is_map && repeated.shape != ParquetNode::Shape::kLeaf && repeated.nodes.size() == 1 &&
                              repeated.name != "array" && repeated.name != node.name + "_tuple";
  }

  std::vector<SchemaElement> elements_;
  std::string where_;
  std::size_t next_ = 0;
  std::size_t leaves_ = 0;
};

ParquetColumnChunk read_column_chunk(ThriftReader& in, ThriftField outer, const std::string& where) {
  ParquetColumnChunk chunk;
  std::int64_t dictionary_offset = 0;
  bool has_metadata = false;
  in.read_struct(outer, [&](ThriftField field) {
    if (field.id == parquet::ColumnChunk::kFilePath)
      throw Error(where, "its columns are in other files, which is not supported");
    if (field.id == parquet::ColumnChunk::kCryptoMetadata) throw Error(where, "is encrypted, which is not supported");
    if (field.id != parquet::ColumnChunk::kMetaData) return false;
    has_metadata = true;
    in.read_struct(field, [&](ThriftField inner) {
      switch (inner.id) {
        case parquet::ColumnMetaData::kCodec: {
          const std::int32_t codec = in.integer32(inner);
          if (!is_value(codec, parquet::CompressionCodec::kLz4Raw))
            throw Error(where, text_of("the compression codec ", codec, " is unknown"));
          chunk.codec = static_cast<parquet::CompressionCodec>(codec);
          return true;
        }
        case parquet::ColumnMetaData::kNumValues:
          chunk.values = in.integer(inner);
          return true;
        case parquet::ColumnMetaData::kTotalCompressedSize:
          chunk.bytes = in.integer(inner);
          return true;
        case parquet::ColumnMetaData::kDataPageOffset:
          chunk.offset = in.integer(inner);
          return true;
        case parquet::ColumnMetaData::kDictionaryPageOffset:
          dictionary_offset = in.integer(inner);
          return true;
        default:
          return false;
      }
    });
    return true;
  });
  if (!has_metadata) throw Error(where, "a column has no metadata", kFetchAgain);
  // The dictionary page, if there is one, comes before the data pages.
  if (dictionary_offset > 0 && dictionary_offset < chunk.offset) chunk.offset = dictionary_offset;
  return chunk;
}

ParquetRowGroup read_row_group(ThriftReader& in, ThriftField outer, const std::string& where) {
  ParquetRowGroup group;
  in.read_struct(outer, [&](ThriftField field) {
    if (field.id == parquet::RowGroup::kColumns) {
      in.read_list(field, [&](ThriftField item) { group.columns.push_back(read_column_chunk(in, item, where)); });
    } else if (field.id == parquet::RowGroup::kNumRows) {
      group.rows = in.integer(field);
    } else {
      return false;
    }
    return true;
  });
  return group;
}

void check_row_groups(const ParquetMetadata& metadata, std::string_view file, const std::string& where) {
  const auto file_bytes = static_cast<std::int64_t>(file.size());
  for (const ParquetRowGroup& group : metadata.row_groups) {
    const bool fits = group.rows >= 0 && group.columns.size() == metadata.root.end_leaf;
    if (!fits) throw Error(where, "a row group does not fit the schema", kFetchAgain);
    for (const ParquetColumnChunk& chunk : group.columns) {
      const bool inside = chunk.offset >= 0 && chunk.bytes >= 0 && chunk.values >= 0 && chunk.offset <= file_bytes &&
                          chunk.bytes <= file_bytes - chunk.offset;
      if (!inside) throw Error(where, "a column is outside of the file", kFetchAgain);
    }
  }
}

}  // namespace

ParquetMetadata read_parquet_metadata(std::string_view file, const std::string& where) {
  static_assert(std::endian::native == std::endian::little);
  using parquet::kMagic;
  constexpr std::size_t kTail = parquet::kFooterLengthBytes + kMagic.size();
  if (file.ends_with(parquet::kEncryptedMagic)) throw Error(where, "is encrypted, which is not supported");
  if (!file.starts_with(kMagic)) throw Error(where, "is not a Parquet file");
  if (file.size() < kMagic.size() + kTail || !file.ends_with(kMagic)) {
    throw Error(where, "the Parquet file ends too early", kFetchAgain);
  }
  std::uint32_t size = 0;
  std::memcpy(&size, file.data() + file.size() - kTail, sizeof size);
  if (size > file.size() - kMagic.size() - kTail) throw Error(where, "damaged footer", kFetchAgain);

  ThriftReader in(file.substr(file.size() - kTail - size, size), where);
  ParquetMetadata metadata;
  std::vector<SchemaElement> elements;
  in.read_struct([&](ThriftField field) {
    if (field.id == parquet::FileMetaData::kSchema) {
      in.read_list(field, [&](ThriftField item) { elements.push_back(read_schema_element(in, item)); });
    } else if (field.id == parquet::FileMetaData::kRowGroups) {
      in.read_list(field, [&](ThriftField item) { metadata.row_groups.push_back(read_row_group(in, item, where)); });
    } else {
      return false;
    }
    return true;
  });
  metadata.root = SchemaBuilder(std::move(elements), where).build();
  check_row_groups(metadata, file, where);
  return metadata;
}

}  // namespace hone
