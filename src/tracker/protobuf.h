// Writes Protocol Buffers messages in the wire format, field by field, and computes the CRCs of the file formats that
// contain them.
// Source: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

class ProtobufWriter {
 public:
  ProtobufWriter& number(int field, std::uint64_t value);  // int32, int64, uint64, bool, enum
  ProtobufWriter& real(int field, double value);
  ProtobufWriter& real(int field, float value);
  ProtobufWriter& text(int field, std::string_view value);  // string, bytes
  ProtobufWriter& message(int field, const ProtobufWriter& value) { return text(field, value.bytes()); }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, unsigned wire_type);
  void varint(std::uint64_t value);

  std::string bytes_;
};

// Returns the lowest `bytes` bytes of a number, least significant first.
[[nodiscard]] std::string little_endian(std::uint64_t value, int bytes);

// Return the CRC-32 (zlib) and CRC-32C (Castagnoli) of data, continuing from `crc`.
[[nodiscard]] std::uint32_t crc32(std::string_view data, std::uint32_t crc = 0);
[[nodiscard]] std::uint32_t crc32c(std::string_view data, std::uint32_t crc = 0);

}  // namespace hone
