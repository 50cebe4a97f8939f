// Reads the metadata of a Parquet file, as far as reading rows requires it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/cells.h"
#include "data/parquet/parquet_format.h"

namespace hone {

// Logical type of a physical value.
enum class ParquetLogicalType : std::uint8_t {
  kPlain,
  kText,
  kUnsignedInteger,
  kDecimal,
  kDate,
  kTime,
  kTimestamp,
  kHalf,
  kUuid,
  kNothing,  // a column that contains only nulls
};

// A node of the schema. Its value in a record is null if the definition level of the entry is below `definition`.
struct ParquetNode {
  enum class Shape : std::uint8_t { kLeaf, kGroup, kList };  // list: a group that contains one repeated node

  std::string name;
  parquet::FieldRepetitionType repetition = parquet::FieldRepetitionType::kRequired;
  Shape shape = Shape::kLeaf;
  int definition = 0;              // definition level from which the node is present
  int repeat = 0;                  // repetition level of the innermost repeated node from the root to this one
  std::vector<ParquetNode> nodes;  // children
  std::size_t first_leaf = 0;      // [first_leaf, end_leaf): leaves at or below this node
  std::size_t end_leaf = 0;
  bool holds_elements = false;  // repeated node in a list: its only child is the element, not the node itself

  // The members below are used only for leaves.
  parquet::Type type = parquet::Type::kBoolean;
  int width = 0;  // bytes of a value of type kInt96 or kFixedLenByteArray
  ParquetLogicalType meaning = ParquetLogicalType::kPlain;
  int scale = 0;  // decimals: digits after the decimal point
  TimeUnit unit = TimeUnit::kMilliseconds;
  bool is_utc = false;
};

// The pages of one leaf in one row group.
struct ParquetColumnChunk {
  std::int64_t offset = 0;  // of the first page in the file
  std::int64_t bytes = 0;
  std::int64_t values = 0;  // nulls included
  parquet::CompressionCodec codec = parquet::CompressionCodec::kUncompressed;
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

struct ParquetPageHeader {
  parquet::PageType type = parquet::PageType::kDataPage;
  std::int32_t plain_bytes = 0;   // size of the body after decompression
  std::int32_t stored_bytes = 0;  // size of the body in the file
  bool has_checksum = false;
  std::uint32_t checksum = 0;  // CRC-32 of the body in the file
  std::int32_t values = 0;     // nulls included
  parquet::Encoding encoding = parquet::Encoding::kPlain;
  parquet::Encoding definition_encoding = parquet::Encoding::kRle;
  parquet::Encoding repetition_encoding = parquet::Encoding::kRle;
  // Only for kDataPageV2: the levels precede the values and are never compressed.
  std::int32_t definition_bytes = 0;
  std::int32_t repetition_bytes = 0;
  bool is_compressed = true;
};
// Reads the header at the start of `bytes` and sets `size` to its size in bytes. Throws Error that begins with `where`.
[[nodiscard]] ParquetPageHeader read_page_header(std::string_view bytes, const std::string& where, std::size_t& size);

}  // namespace hone
