// The metadata of a Parquet file, as far as reading rows needs it.
// Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/cells.h"

namespace hone {

enum class ParquetType : std::uint8_t { boolean, int32, int64, int96, float32, float64, byte_array, fixed_bytes };

// How a physical value is to be read.
enum class ParquetMeaning : std::uint8_t {
  plain,
  text,
  unsigned_integer,
  decimal,
  date,
  time,
  timestamp,
  half,
  uuid,
  nothing,  // a column of nulls
};

// A node of the schema. A record's value of it is null where its definition level is below `definition`.
struct ParquetNode {
  enum class Repetition : std::uint8_t { required, optional, repeated };
  enum class Shape : std::uint8_t { leaf, group, list };  // list: a group around one repeated node

  std::string name;
  Repetition repetition = Repetition::required;
  Shape shape = Shape::leaf;
  int definition = 0;              // level at which it is there
  int repeat = 0;                  // level of the innermost repeated node from the root to it
  std::vector<ParquetNode> nodes;  // below it
  std::size_t first_leaf = 0;      // [first_leaf, end_leaf): the leaves at or below it
  std::size_t end_leaf = 0;
  bool holds_elements = false;  // of a repeated node in a list: its one node is the element, not it

  // Of a leaf.
  ParquetType type = ParquetType::boolean;
  int width = 0;  // bytes of fixed_bytes
  ParquetMeaning meaning = ParquetMeaning::plain;
  int scale = 0;  // of decimals
  TimeUnit unit = TimeUnit::milliseconds;
  bool is_utc = false;
};

enum class ParquetCodec : std::uint8_t { none, snappy, gzip, lzo, brotli, lz4_hadoop, zstd, lz4_raw };

struct ParquetColumnChunk {
  std::int64_t offset = 0;  // of its first page in the file
  std::int64_t bytes = 0;
  std::int64_t values = 0;  // nulls included
  ParquetCodec codec = ParquetCodec::none;
};

struct ParquetRowGroup {
  std::int64_t rows = 0;
  std::vector<ParquetColumnChunk> columns;  // [leaves]
};

struct ParquetMetadata {
  ParquetNode root;  // a group
  std::vector<ParquetRowGroup> row_groups;
};

// From a whole file. Throws Error, beginning with `where`.
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
  std::int32_t plain_bytes = 0;   // of the body
  std::int32_t stored_bytes = 0;  // of the body as it is in the file
  bool has_checksum = false;
  std::uint32_t checksum = 0;  // CRC-32 of the body as it is in the file
  std::int32_t values = 0;     // nulls included
  std::int32_t encoding = 0;
  std::int32_t definition_encoding = 3;
  std::int32_t repetition_encoding = 3;
  // Of data_v2: the levels lie before the values and are never compressed.
  std::int32_t definition_bytes = 0;
  std::int32_t repetition_bytes = 0;
  bool is_compressed = true;
};
// From the start of `bytes`; `size` becomes the header's. Throws Error, beginning with `where`.
[[nodiscard]] ParquetPageHeader read_page_header(std::string_view bytes, const std::string& where, std::size_t& size);

}  // namespace hone
