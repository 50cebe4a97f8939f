// Reads the metadata of a Parquet file, as far as reading rows requires it.
// Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/cells.h"

namespace hone {

enum class ParquetType : std::uint8_t { boolean, int32, int64, int96, float32, float64, byte_array, fixed_bytes };

// Logical type of a physical value.
enum class ParquetLogicalType : std::uint8_t {
  plain,
  text,
  unsigned_integer,
  decimal,
  date,
  time,
  timestamp,
  half,
  uuid,
  nothing,  // a column that contains only nulls
};

// A node of the schema. Its value in a record is null if the definition level of the entry is below `definition`.
struct ParquetNode {
  enum class Repetition : std::uint8_t { required, optional, repeated };
  enum class Shape : std::uint8_t { leaf, group, list };  // list: a group that contains one repeated node

  std::string name;
  Repetition repetition = Repetition::required;
  Shape shape = Shape::leaf;
  int definition = 0;              // definition level from which the node is present
  int repeat = 0;                  // repetition level of the innermost repeated node from the root to this one
  std::vector<ParquetNode> nodes;  // children
  std::size_t first_leaf = 0;      // [first_leaf, end_leaf): leaves at or below this node
  std::size_t end_leaf = 0;
  bool holds_elements = false;  // repeated node in a list: its only child is the element, not the node itself

  // The members below are used only for leaves.
  ParquetType type = ParquetType::boolean;
  int width = 0;  // bytes of fixed_bytes
  ParquetLogicalType meaning = ParquetLogicalType::plain;
  int scale = 0;  // decimals: digits after the decimal point
  TimeUnit unit = TimeUnit::milliseconds;
  bool is_utc = false;
};

enum class ParquetCodec : std::uint8_t { none, snappy, gzip, lzo, brotli, lz4_hadoop, zstd, lz4_raw };

// The pages of one leaf in one row group.
struct ParquetColumnChunk {
  std::int64_t offset = 0;  // of the first page in the file
  std::int64_t bytes = 0;
  std::int64_t values = 0;  // nulls included
  ParquetCodec codec = ParquetCodec::none;
};

struct ParquetRowGroup {
  std::int64_t rows = 0;
  std::vector<ParquetColumnChunk> columns;  // [leaves]
};

struct ParquetMetadata {
  ParquetNode root;  // the whole record, a group
  std::vector<ParquetRowGroup> row_groups;
};

// Reads the footer of a complete file. Throws Error that begins with `where`.
[[nodiscard]] ParquetMetadata read_parquet_metadata(std::string_view file, const std::string& where);

enum class ParquetEncoding : std::uint8_t {
  plain = 0,
  plain_dictionary = 2,
  rle = 3,
  bit_packed = 4,
  delta_binary_packed = 5,
  delta_length_byte_array = 6,
  delta_byte_array = 7,
  rle_dictionary = 8,
  byte_stream_split = 9,
};

struct ParquetPageHeader {
  enum class Kind : std::uint8_t { data, index, dictionary, data_v2 };
  Kind kind = Kind::data;
  std::int32_t plain_bytes = 0;   // size of the body after decompression
  std::int32_t stored_bytes = 0;  // size of the body in the file
  bool has_checksum = false;
  std::uint32_t checksum = 0;  // CRC-32 of the body in the file
  std::int32_t values = 0;     // nulls included
  std::int32_t encoding = 0;
  std::int32_t definition_encoding = 3;
  std::int32_t repetition_encoding = 3;
  // Only for data_v2: the levels precede the values and are never compressed.
  std::int32_t definition_bytes = 0;
  std::int32_t repetition_bytes = 0;
  bool is_compressed = true;
};
// Reads the header at the start of `bytes` and sets `size` to its size in bytes. Throws Error that begins with `where`.
[[nodiscard]] ParquetPageHeader read_page_header(std::string_view bytes, const std::string& where, std::size_t& size);

}  // namespace hone
