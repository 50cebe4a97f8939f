#include "data/parquet/metadata.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/unicode.h"
#include "data/file_format.h"
#include "data/parquet/thrift.h"

namespace hone {
// Field ids are those of parquet.thrift; the comments give the names of its fields.
namespace {

constexpr int kDeepestSchema = 64;

// The positions are the numbers of parquet.thrift.
constexpr std::array kRepetitions{ParquetNode::Repetition::required, ParquetNode::Repetition::optional,
                                  ParquetNode::Repetition::repeated};
constexpr std::array kTypes{ParquetType::boolean,    ParquetType::int32,      ParquetType::int64,
                            ParquetType::int96,      ParquetType::float32,    ParquetType::float64,
                            ParquetType::byte_array, ParquetType::fixed_bytes};

// An element of the schema, which the file lists depth first.
struct SchemaElement {
  std::int32_t type = -1;  // -1: a group
  std::int32_t width = 0;
  std::int32_t repetition = 0;
  std::string name;
  std::int32_t children = 0;
  std::int32_t converted = -1;
  std::int32_t scale = 0;
  int logical = 0;  // id of the member that is set in the union LogicalType
  std::int32_t unit = 0;
  bool is_utc = false;
  bool is_signed = true;
};

void read_logical_type(ThriftReader& in, ThriftField outer, SchemaElement& element) {
  in.read_struct(outer, [&](ThriftField kind) {
    element.logical = kind.id;
    in.read_struct(kind, [&](ThriftField field) {
      const bool is_time = kind.id == 7 || kind.id == 8;  // TIME, TIMESTAMP
      if (kind.id == 5 && field.id == 1) {                // DECIMAL.scale
        element.scale = in.integer32(field);
      } else if (is_time && field.id == 1) {  // isAdjustedToUTC
        element.is_utc = in.boolean(field);
      } else if (is_time && field.id == 2) {  // unit
        in.read_struct(field, [&](ThriftField unit) {
          element.unit = unit.id;
          return false;
        });
      } else if (kind.id == 10 && field.id == 2) {  // INTEGER.isSigned
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
      case 1:  // type
        element.type = in.integer32(field);
        return true;
      case 2:  // type_length
        element.width = in.integer32(field);
        return true;
      case 3:  // repetition_type
        element.repetition = in.integer32(field);
        return true;
      case 4:  // name
        element.name = replace_invalid_utf8(in.binary(field));
        return true;
      case 5:  // num_children
        element.children = in.integer32(field);
        return true;
      case 6:  // converted_type
        element.converted = in.integer32(field);
        return true;
      case 7:  // scale
        element.scale = in.integer32(field);
        return true;
      case 10:  // logicalType
        read_logical_type(in, field, element);
        return true;
      default:
        return false;
    }
  });
  return element;
}

struct LeafMeaning {
  ParquetLogicalType meaning = ParquetLogicalType::plain;
  TimeUnit unit = TimeUnit::milliseconds;
  bool is_utc = false;
};

LeafMeaning meaning_of(const SchemaElement& element) {
  const TimeUnit unit = element.unit == 1   ? TimeUnit::milliseconds
                        : element.unit == 2 ? TimeUnit::microseconds
                                            : TimeUnit::nanoseconds;
  switch (element.logical) {
    case 1:   // STRING
    case 4:   // ENUM
    case 12:  // JSON
      return {.meaning = ParquetLogicalType::text};
    case 5:  // DECIMAL
      return {.meaning = ParquetLogicalType::decimal};
    case 6:  // DATE
      return {.meaning = ParquetLogicalType::date};
    case 7:  // TIME
      return {.meaning = ParquetLogicalType::time, .unit = unit};
    case 8:  // TIMESTAMP
      return {.meaning = ParquetLogicalType::timestamp, .unit = unit, .is_utc = element.is_utc};
    case 10:  // INTEGER
      return {.meaning = element.is_signed ? ParquetLogicalType::plain : ParquetLogicalType::unsigned_integer};
    case 11:  // UNKNOWN
      return {.meaning = ParquetLogicalType::nothing};
    case 14:  // UUID
      return {.meaning = ParquetLogicalType::uuid};
    case 15:  // FLOAT16
      return {.meaning = ParquetLogicalType::half};
    default:
      break;
  }
  switch (element.converted) {
    case 0:   // UTF8
    case 4:   // ENUM
    case 19:  // JSON
      return {.meaning = ParquetLogicalType::text};
    case 5:  // DECIMAL
      return {.meaning = ParquetLogicalType::decimal};
    case 6:  // DATE
      return {.meaning = ParquetLogicalType::date};
    case 7:  // TIME_MILLIS
    case 8:  // TIME_MICROS
      return {.meaning = ParquetLogicalType::time,
              .unit = element.converted == 7 ? TimeUnit::milliseconds : TimeUnit::microseconds};
    case 9:   // TIMESTAMP_MILLIS
    case 10:  // TIMESTAMP_MICROS
      return {.meaning = ParquetLogicalType::timestamp,
              .unit = element.converted == 9 ? TimeUnit::milliseconds : TimeUnit::microseconds,
              .is_utc = true};
    case 11:  // UINT_8
    case 12:  // UINT_16
    case 13:  // UINT_32
    case 14:  // UINT_64
      return {.meaning = ParquetLogicalType::unsigned_integer};
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
    expect(root.shape == ParquetNode::Shape::group && next_ == elements_.size());
    return root;
  }

 private:
  void expect(bool condition) const {
    if (!condition) throw Error(where_, "damaged schema", kFetchAgain);
  }

  ParquetNode take(const ParquetNode& parent, int depth) {
    expect(next_ < elements_.size() && depth < kDeepestSchema);
    const SchemaElement& element = elements_[next_++];
    ParquetNode node{.name = element.name, .definition = parent.definition, .repeat = parent.repeat};
    if (depth > 0) {
      expect(element.repetition >= 0 && element.repetition < std::ssize(kRepetitions));
      node.repetition = kRepetitions[static_cast<std::size_t>(element.repetition)];
    }
    if (node.repetition != ParquetNode::Repetition::required) ++node.definition;
    if (node.repetition == ParquetNode::Repetition::repeated) ++node.repeat;
    node.first_leaf = leaves_;
    if (element.type >= 0 && depth > 0) {
      describe_leaf(element, node);
      ++leaves_;
    } else {
      expect(element.children > 0 || depth == 0);
      node.shape = ParquetNode::Shape::group;
      for (std::int32_t i = 0; i < element.children; ++i) node.nodes.push_back(take(node, depth + 1));
      if (depth > 0) find_list(element, node);
    }
    node.end_leaf = leaves_;
    return node;
  }

  void describe_leaf(const SchemaElement& element, ParquetNode& node) const {
    expect(element.type < std::ssize(kTypes) && element.children <= 0);
    const LeafMeaning meaning = meaning_of(element);
    node.type = kTypes[static_cast<std::size_t>(element.type)];
    node.meaning = meaning.meaning;
    node.unit = meaning.unit;
    node.is_utc = meaning.is_utc;
    node.scale = element.scale;
    node.width = element.width;
    if (node.type == ParquetType::int96) node.width = 12;
    if (node.type == ParquetType::fixed_bytes) expect(node.width > 0);
  }

  // Recognizes lists and maps, including the older forms with two levels: parquet-format's LogicalTypes.md,
  // "Backward-compatibility rules". A map is read as the list of its entries.
  static void find_list(const SchemaElement& element, ParquetNode& node) {
    const bool is_map = element.logical == 2 || element.converted == 1 || element.converted == 2;  // MAP, MAP_KEY_VALUE
    const bool is_list = is_map || element.logical == 3 || element.converted == 3;                 // LIST
    if (!is_list || node.nodes.size() != 1) return;
    ParquetNode& repeated = node.nodes[0];
    if (repeated.repetition != ParquetNode::Repetition::repeated) return;
    node.shape = ParquetNode::Shape::list;
    repeated.holds_elements = !is_map && repeated.shape != ParquetNode::Shape::leaf && repeated.nodes.size() == 1 &&
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
    if (field.id == 1) throw Error(where, "its columns are in other files, which is not supported");
    if (field.id == 8) throw Error(where, "is encrypted, which is not supported");
    if (field.id != 3) return false;
    has_metadata = true;
    in.read_struct(field, [&](ThriftField inner) {
      switch (inner.id) {
        case 4: {  // codec
          const std::int32_t codec = in.integer32(inner);
          if (codec < 0 || codec > 7) throw Error(where, text_of("the compression codec ", codec, " is unknown"));
          chunk.codec = static_cast<ParquetCodec>(codec);
          return true;
        }
        case 5:  // num_values
          chunk.values = in.integer(inner);
          return true;
        case 7:  // total_compressed_size
          chunk.bytes = in.integer(inner);
          return true;
        case 9:  // data_page_offset
          chunk.offset = in.integer(inner);
          return true;
        case 11:  // dictionary_page_offset
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
    if (field.id == 1) {
      in.read_list(field, [&](ThriftField item) { group.columns.push_back(read_column_chunk(in, item, where)); });
    } else if (field.id == 3) {
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
  constexpr std::string_view kMagic = "PAR1";
  constexpr std::size_t kTail = 8;
  if (file.ends_with("PARE")) throw Error(where, "is encrypted, which is not supported");
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
    if (field.id == 2) {  // schema
      in.read_list(field, [&](ThriftField item) { elements.push_back(read_schema_element(in, item)); });
    } else if (field.id == 4) {  // row_groups
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

ParquetPageHeader read_page_header(std::string_view bytes, const std::string& where, std::size_t& size) {
  ThriftReader in(bytes, where);
  ParquetPageHeader page;
  std::int32_t kind = -1;
  in.read_struct([&](ThriftField field) {
    switch (field.id) {
      case 1:  // type
        kind = in.integer32(field);
        return true;
      case 2:  // uncompressed_page_size
        page.plain_bytes = in.integer32(field);
        return true;
      case 3:  // compressed_page_size
        page.stored_bytes = in.integer32(field);
        return true;
      case 4:  // crc
        page.checksum = static_cast<std::uint32_t>(in.integer32(field));
        page.has_checksum = true;
        return true;
      case 5:  // data_page_header
      case 7:  // dictionary_page_header
      case 8:  // data_page_header_v2
        in.read_struct(field, [&](ThriftField inner) {
          const bool is_v2 = field.id == 8;
          if (inner.id == 1) {
            page.values = in.integer32(inner);
          } else if (inner.id == (is_v2 ? 4 : 2)) {
            page.encoding = in.integer32(inner);
          } else if (field.id == 5 && inner.id == 3) {
            page.definition_encoding = in.integer32(inner);
          } else if (field.id == 5 && inner.id == 4) {
            page.repetition_encoding = in.integer32(inner);
          } else if (is_v2 && inner.id == 5) {
            page.definition_bytes = in.integer32(inner);
          } else if (is_v2 && inner.id == 6) {
            page.repetition_bytes = in.integer32(inner);
          } else if (is_v2 && inner.id == 7) {
            page.is_compressed = in.boolean(inner);
          } else {
            return false;
          }
          return true;
        });
        return true;
      default:
        return false;
    }
  });
  if (kind < 0 || kind > 3 || page.plain_bytes < 0 || page.stored_bytes < 0 || page.values < 0 ||
      page.definition_bytes < 0 || page.repetition_bytes < 0) {
    throw Error(where, "damaged page header", kFetchAgain);
  }
  page.kind = static_cast<ParquetPageHeader::Kind>(kind);
  size = in.consumed();
  return page;
}

}  // namespace hone
