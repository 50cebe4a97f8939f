// Names for the numbers of Arrow's IPC format: magic numbers, enumerations, the slots of tables and the layout of
// structs. Names and values are those of the specification.
// Sources: Schema.fbs and Message.fbs of format version 1.5 (https://github.com/apache/arrow/tree/main/format), and
// https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hone::arrow {

inline constexpr std::string_view kMagic = "ARROW1";         // at both ends of a file
inline constexpr std::size_t kPaddedMagicBytes = 8;          // the magic number before the first message, padded
inline constexpr std::string_view kFeatherV1Magic = "FEA1";  // an older format of the name Feather
inline constexpr std::int32_t kContinuation = -1;            // precedes the size of a message since version 0.15
inline constexpr std::int32_t kEndOfStream = 0;              // in place of the size of a message
inline constexpr std::int64_t kUncompressedBuffer = -1;      // in place of the size of a compressed buffer
inline constexpr std::size_t kOffsetBytes = 4;               // offset to a table in a vector of tables

// Enumerations of Schema.fbs.

// Union Type; 0 is flatbuffers' value for a union that is not set.
enum class Type : std::uint8_t {
  kNone = 0,
  kNull = 1,
  kInt = 2,
  kFloatingPoint = 3,
  kBinary = 4,
  kUtf8 = 5,
  kBool = 6,
  kDecimal = 7,
  kDate = 8,
  kTime = 9,
  kTimestamp = 10,
  kInterval = 11,
  kList = 12,
  kStruct = 13,  // "Struct_"
  kUnion = 14,
  kFixedSizeBinary = 15,
  kFixedSizeList = 16,
  kMap = 17,
  kDuration = 18,
  kLargeBinary = 19,
  kLargeUtf8 = 20,
  kLargeList = 21,
  kRunEndEncoded = 22,
  kBinaryView = 23,
  kUtf8View = 24,
  kListView = 25,
  kLargeListView = 26,
};

enum class Precision : std::int16_t { kHalf = 0, kSingle = 1, kDouble = 2 };
enum class DateUnit : std::int16_t { kDay = 0, kMillisecond = 1 };
enum class TimeUnit : std::int16_t { kSecond = 0, kMillisecond = 1, kMicrosecond = 2, kNanosecond = 3 };
enum class IntervalUnit : std::int16_t { kYearMonth = 0, kDayTime = 1, kMonthDayNano = 2 };
enum class Endianness : std::int16_t { kLittle = 0, kBig = 1 };

// Enumerations of Message.fbs.

// Union MessageHeader.
enum class MessageHeader : std::uint8_t {
  kNone = 0,
  kSchema = 1,
  kDictionaryBatch = 2,
  kRecordBatch = 3,
  kTensor = 4,
  kSparseTensor = 5,
};
enum class CompressionType : std::int8_t { kLz4Frame = 0, kZstd = 1 };
enum class BodyCompressionMethod : std::int8_t { kBuffer = 0 };

// Slots of the tables: a field's position in its table, where a union takes two (its type, then its value). The
// enumerations convert to the integers that FlatTable's functions take.

struct Schema {
  enum Slot : int { kEndianness = 0, kFields = 1, kCustomMetadata = 2, kFeatures = 3 };
};

struct Field {
  enum Slot : int {
    kName = 0,
    kNullable = 1,
    kTypeType = 2,
    kType = 3,
    kDictionary = 4,
    kChildren = 5,
    kCustomMetadata = 6,
  };
};

struct DictionaryEncoding {
  enum Slot : int { kId = 0, kIndexType = 1, kIsOrdered = 2, kDictionaryKind = 3 };
};

struct Int {
  enum Slot : int { kBitWidth = 0, kIsSigned = 1 };
};

struct FloatingPoint {
  enum Slot : int { kPrecision = 0 };
};

struct Decimal {
  enum Slot : int { kPrecision = 0, kScale = 1, kBitWidth = 2 };
  static constexpr std::int32_t kDefaultBitWidth = 128;
};

struct Date {
  enum Slot : int { kUnit = 0 };
  static constexpr DateUnit kDefaultUnit = DateUnit::kMillisecond;
};

struct Time {
  enum Slot : int { kUnit = 0, kBitWidth = 1 };
  static constexpr TimeUnit kDefaultUnit = TimeUnit::kMillisecond;
  static constexpr std::int32_t kDefaultBitWidth = 32;
};

struct Timestamp {
  enum Slot : int { kUnit = 0, kTimezone = 1 };
};

struct Interval {
  enum Slot : int { kUnit = 0 };
};

struct FixedSizeBinary {
  enum Slot : int { kByteWidth = 0 };
};

struct FixedSizeList {
  enum Slot : int { kListSize = 0 };
};

struct Message {
  enum Slot : int { kVersion = 0, kHeaderType = 1, kHeader = 2, kBodyLength = 3, kCustomMetadata = 4 };
};

struct RecordBatch {
  enum Slot : int { kLength = 0, kNodes = 1, kBuffers = 2, kCompression = 3, kVariadicBufferCounts = 4 };
};

struct BodyCompression {
  enum Slot : int { kCodec = 0, kMethod = 1 };
};

struct DictionaryBatch {
  enum Slot : int { kId = 0, kData = 1, kIsDelta = 2 };
};

// Structs, which are stored in place: offsets of their members and their size, in bytes.

struct FieldNode {
  enum Offset : std::size_t { kLength = 0, kNullCount = 8 };
  static constexpr std::size_t kBytes = 16;
};

struct Buffer {
  enum Offset : std::size_t { kOffset = 0, kLength = 8 };
  static constexpr std::size_t kBytes = 16;
};

}  // namespace hone::arrow
