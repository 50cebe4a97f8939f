// Names for the numbers of the Parquet format: magic numbers, enumerations, and the field ids of the structures that
// readers here look at. Names and values are those of the specification.
// Source: parquet-format 2.12.0, README.md and src/main/thrift/parquet.thrift
// (https://github.com/apache/parquet-format/blob/apache-parquet-format-2.12.0/src/main/thrift/parquet.thrift)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hone::parquet {

inline constexpr std::string_view kMagic = "PAR1";           // at both ends of a file
inline constexpr std::string_view kEncryptedMagic = "PARE";  // at both ends of a file whose footer is encrypted
inline constexpr std::size_t kFooterLengthBytes = 4;         // length of the footer, before the last magic number

// Sizes of values whose type determines them, in bytes.
inline constexpr int kInt96Bytes = 12;
inline constexpr int kFloat16Bytes = 2;
inline constexpr int kUuidBytes = 16;

// Physical type of a column.
enum class Type : std::int32_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedLenByteArray = 7,
};

// Logical type in files of older writers.
enum class ConvertedType : std::int32_t {
  kUtf8 = 0,
  kMap = 1,
  kMapKeyValue = 2,
  kList = 3,
  kEnum = 4,
  kDecimal = 5,
  kDate = 6,
  kTimeMillis = 7,
  kTimeMicros = 8,
  kTimestampMillis = 9,
  kTimestampMicros = 10,
  kUint8 = 11,
  kUint16 = 12,
  kUint32 = 13,
  kUint64 = 14,
  kInt8 = 15,
  kInt16 = 16,
  kInt32 = 17,
  kInt64 = 18,
  kJson = 19,
  kBson = 20,
  kInterval = 21,
};

enum class FieldRepetitionType : std::int32_t { kRequired = 0, kOptional = 1, kRepeated = 2 };

enum class Encoding : std::int32_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kBitPacked = 4,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9,
};

enum class CompressionCodec : std::int32_t {
  kUncompressed = 0,
  kSnappy = 1,
  kGzip = 2,
  kLzo = 3,
  kBrotli = 4,
  kLz4 = 5,  // deprecated: blocks in Hadoop's frames
  kZstd = 6,
  kLz4Raw = 7,
};

enum class PageType : std::int32_t { kDataPage = 0, kIndexPage = 1, kDictionaryPage = 2, kDataPageV2 = 3 };

// Field ids, by structure or union. The enumerations convert to the integers that ThriftField::id holds.

struct FileMetaData {
  enum Field : int { kSchema = 2, kRowGroups = 4 };
};

struct SchemaElement {
  enum Field : int {
    kType = 1,
    kTypeLength = 2,
    kRepetitionType = 3,
    kName = 4,
    kNumChildren = 5,
    kConvertedType = 6,
    kScale = 7,
    kLogicalType = 10,
  };
};

struct LogicalType {
  enum Field : int {
    kNone = 0,  // not in the specification: no member is set
    kString = 1,
    kMap = 2,
    kList = 3,
    kEnum = 4,
    kDecimal = 5,
    kDate = 6,
    kTime = 7,
    kTimestamp = 8,
    kInteger = 10,
    kUnknown = 11,
    kJson = 12,
    kBson = 13,
    kUuid = 14,
    kFloat16 = 15,
    kVariant = 16,
    kGeometry = 17,
    kGeography = 18,
  };
};

struct DecimalType {
  enum Field : int { kScale = 1, kPrecision = 2 };
};

// TimeType and TimestampType have the same fields.
struct TimeType {
  enum Field : int { kIsAdjustedToUtc = 1, kUnit = 2 };
};

struct TimeUnit {
  enum Field : int { kMillis = 1, kMicros = 2, kNanos = 3 };
};

struct IntType {
  enum Field : int { kBitWidth = 1, kIsSigned = 2 };
};

struct RowGroup {
  enum Field : int { kColumns = 1, kNumRows = 3 };
};

struct ColumnChunk {
  enum Field : int { kFilePath = 1, kMetaData = 3, kCryptoMetadata = 8 };
};

struct ColumnMetaData {
  enum Field : int {
    kCodec = 4,
    kNumValues = 5,
    kTotalCompressedSize = 7,
    kDataPageOffset = 9,
    kDictionaryPageOffset = 11,
  };
};

struct PageHeader {
  enum Field : int {
    kType = 1,
    kUncompressedPageSize = 2,
    kCompressedPageSize = 3,
    kCrc = 4,
    kDataPageHeader = 5,
    kIndexPageHeader = 6,
    kDictionaryPageHeader = 7,
    kDataPageHeaderV2 = 8,
  };
};

struct DataPageHeader {
  enum Field : int { kNumValues = 1, kEncoding = 2, kDefinitionLevelEncoding = 3, kRepetitionLevelEncoding = 4 };
};

struct DictionaryPageHeader {
  enum Field : int { kNumValues = 1, kEncoding = 2 };
};

struct DataPageHeaderV2 {
  enum Field : int {
    kNumValues = 1,
    kEncoding = 4,
    kDefinitionLevelsByteLength = 5,
    kRepetitionLevelsByteLength = 6,
    kIsCompressed = 7,
  };
};

// Returns true if `number` is a value of an enumeration that begins at 0 and ends at `last`.
template <class Enum>
[[nodiscard]] constexpr bool is_value(std::int32_t number, Enum last) {
  return number >= 0 && number <= static_cast<std::int32_t>(last);
}

}  // namespace hone::parquet
