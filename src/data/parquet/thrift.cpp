#include "data/parquet/thrift.h"

#include <limits>

#include "core/error.h"

namespace hone {

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
  field.type = static_cast<ThriftType>(header & 0xF);
  if (field.type == ThriftType::stop) return false;
  expect(field.type <= ThriftType::structure);
  const std::int64_t id = (header >> 4) != 0 ? field.id + (header >> 4) : zigzag();
  expect(id >= 0 && id <= std::numeric_limits<std::int16_t>::max());
  field.id = static_cast<int>(id);
  return true;
}

std::uint64_t ThriftReader::list_header(ThriftType& element) {
  const std::uint8_t header = byte();
  element = static_cast<ThriftType>(header & 0xF);
  const std::uint64_t size = (header >> 4) == 15 ? varint() : header >> 4;
  expect(element != ThriftType::stop && element <= ThriftType::structure);
  expect(size <= bytes_.size() - at_);  // an element takes at least one byte
  return size;
}

std::int64_t ThriftReader::integer(ThriftField field) {
  if (field.type == ThriftType::i8) return static_cast<std::int8_t>(byte());
  expect(field.type == ThriftType::i16 || field.type == ThriftType::i32 || field.type == ThriftType::i64);
  return zigzag();
}

std::int32_t ThriftReader::integer32(ThriftField field) {
  const std::int64_t value = integer(field);
  expect(value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(value);
}

bool ThriftReader::boolean(ThriftField field) {
  expect(field.type == ThriftType::yes || field.type == ThriftType::no);
  return field.type == ThriftType::yes;
}

std::string_view ThriftReader::binary(ThriftField field) {
  expect(field.type == ThriftType::binary);
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
  if (type == ThriftType::yes || type == ThriftType::no) {
    skip_bytes(1);
  } else {
    skip(type);
  }
}

void ThriftReader::skip(ThriftType type) {
  switch (type) {
    case ThriftType::stop:
    case ThriftType::yes:
    case ThriftType::no:
      return;
    case ThriftType::i8:
      return skip_bytes(1);
    case ThriftType::i16:
    case ThriftType::i32:
    case ThriftType::i64:
      (void)varint();
      return;
    case ThriftType::real:
      return skip_bytes(8);
    case ThriftType::binary:
      return skip_bytes(varint());
    case ThriftType::structure:
      return read_struct([](ThriftField) { return false; });
    case ThriftType::list:
    case ThriftType::set: {
      enter();
      ThriftType element = ThriftType::stop;
      for (std::uint64_t left = list_header(element); left > 0; --left) skip_element(element);
      --depth_;
      return;
    }
    case ThriftType::map: {
      enter();
      const std::uint64_t size = varint();
      expect(size <= bytes_.size() - at_);
      const std::uint8_t types = size == 0 ? 0 : byte();
      for (std::uint64_t left = size; left > 0; --left) {
        skip_element(static_cast<ThriftType>(types >> 4));
        skip_element(static_cast<ThriftType>(types & 0xF));
      }
      --depth_;
      return;
    }
  }
  expect(false);
}

}  // namespace hone
