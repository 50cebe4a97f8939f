#include "data/parquet/thrift.h"

#include <limits>

#include "core/error.h"

namespace hone {
namespace {

// The header of a field or list is one byte. Its low four bits are the type; its high four bits are the difference from
// the previous field's id, or the size of the list.
constexpr std::uint8_t kLongFieldId = 0;    // the id follows the header
constexpr std::uint8_t kLongListSize = 15;  // the size follows the header

ThriftType low_type(std::uint8_t header) { return static_cast<ThriftType>(header & 0xF); }
std::uint8_t high_bits(std::uint8_t header) { return header >> 4; }

}  // namespace

void ThriftReader::expect(bool condition) const {
  if (!condition) throw Error(where_, "damaged metadata", "is it whole? fetch it again");
}

void ThriftReader::enter() { expect(++depth_ <= kDeepest); }

std::uint8_t ThriftReader::byte() {
  expect(at_ < bytes_.size());
  return static_cast<std::uint8_t>(bytes_[at_++]);
}

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t part = byte();
    value |= static_cast<std::uint64_t>(part & 0x7F) << shift;
    if (part < 0x80) return value;
  }
  expect(false);
  return 0;
}

std::int64_t ThriftReader::zigzag() {
  const std::uint64_t value = varint();
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

bool ThriftReader::next_field(ThriftField& field) {
  const std::uint8_t header = byte();
  field.type = low_type(header);
  if (field.type == ThriftType::kStop) return false;
  expect(field.type <= ThriftType::kStruct);
  const std::int64_t id = high_bits(header) != kLongFieldId ? field.id + high_bits(header) : zigzag();
  expect(id >= 0 && id <= std::numeric_limits<std::int16_t>::max());
  field.id = static_cast<int>(id);
  return true;
}

std::uint64_t ThriftReader::list_header(ThriftType& element) {
  const std::uint8_t header = byte();
  element = low_type(header);
  const std::uint64_t size = high_bits(header) == kLongListSize ? varint() : high_bits(header);
  expect(element != ThriftType::kStop && element <= ThriftType::kStruct);
  expect(size <= bytes_.size() - at_);  // an element takes at least one byte
  return size;
}

std::int64_t ThriftReader::integer(ThriftField field) {
  if (field.type == ThriftType::kI8) return static_cast<std::int8_t>(byte());
  expect(field.type == ThriftType::kI16 || field.type == ThriftType::kI32 || field.type == ThriftType::kI64);
  return zigzag();
}

std::int32_t ThriftReader::integer32(ThriftField field) {
  const std::int64_t value = integer(field);
  expect(value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(value);
}

bool ThriftReader::boolean(ThriftField field) {
  expect(field.type == ThriftType::kBooleanTrue || field.type == ThriftType::kBooleanFalse);
  return field.type == ThriftType::kBooleanTrue;
}

std::string_view ThriftReader::binary(ThriftField field) {
  expect(field.type == ThriftType::kBinary);
  const std::uint64_t size = varint();
  expect(size <= bytes_.size() - at_);
  const std::string_view text = bytes_.substr(at_, static_cast<std::size_t>(size));
  at_ += text.size();
  return text;
}

void ThriftReader::skip_bytes(std::uint64_t count) {
  expect(count <= bytes_.size() - at_);
  at_ += static_cast<std::size_t>(count);
}

// In a list, a boolean takes one byte.
void ThriftReader::skip_element(ThriftType type) {
  if (type == ThriftType::kBooleanTrue || type == ThriftType::kBooleanFalse) {
    skip_bytes(1);
  } else {
    skip(type);
  }
}

void ThriftReader::skip(ThriftType type) {
  switch (type) {
    case ThriftType::kStop:
    case ThriftType::kBooleanTrue:
    case ThriftType::kBooleanFalse:
      return;
    case ThriftType::kI8:
      return skip_bytes(1);
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      (void)varint();
      return;
    case ThriftType::kDouble:
      return skip_bytes(sizeof(double));
    case ThriftType::kBinary:
      return skip_bytes(varint());
    case ThriftType::kStruct:
      return read_struct([](ThriftField) { return false; });
    case ThriftType::kList:
    case ThriftType::kSet: {
      enter();
      ThriftType element = ThriftType::kStop;
      for (std::uint64_t left = list_header(element); left > 0; --left) skip_element(element);
      --depth_;
      return;
    }
    case ThriftType::kMap: {
      enter();
      const std::uint64_t size = varint();
      expect(size <= bytes_.size() - at_);
      const std::uint8_t types = size == 0 ? 0 : byte();
      for (std::uint64_t left = size; left > 0; --left) {
        skip_element(static_cast<ThriftType>(high_bits(types)));  // key
        skip_element(low_type(types));                            // value
      }
      --depth_;
      return;
    }
  }
  expect(false);
}

}  // namespace hone
