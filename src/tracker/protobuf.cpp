#include "tracker/protobuf.h"

#include <array>
#include <bit>

namespace hone {
namespace {

constexpr std::uint32_t kZlib = 0xEDB88320u;
constexpr std::uint32_t kCastagnoli = 0x82F63B78u;

constexpr std::array<std::uint32_t, 256> crc_table(std::uint32_t polynomial) {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? polynomial : 0u);
    table[byte] = value;
  }
  return table;
}

constexpr auto kZlibTable = crc_table(kZlib);
constexpr auto kCastagnoliTable = crc_table(kCastagnoli);

std::uint32_t crc_of(const std::array<std::uint32_t, 256>& table, std::string_view data, std::uint32_t crc) {
  crc = ~crc;
  for (const char c : data) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFFu] ^ (crc >> 8);
  return ~crc;
}

constexpr unsigned kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5;

}  // namespace

void ProtobufWriter::varint(std::uint64_t value) {
  for (; value >= 0x80u; value >>= 7) bytes_ += static_cast<char>((value & 0x7Fu) | 0x80u);
  bytes_ += static_cast<char>(value);
}

void ProtobufWriter::tag(int field, unsigned wire_type) {
  varint((static_cast<std::uint64_t>(field) << 3) | wire_type);
}

ProtobufWriter& ProtobufWriter::number(int field, std::uint64_t value) {
  tag(field, kVarint);
  varint(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::real(int field, double value) {
  tag(field, kFixed64);
  bytes_ += little_endian(std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

ProtobufWriter& ProtobufWriter::real(int field, float value) {
  tag(field, kFixed32);
  bytes_ += little_endian(std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

ProtobufWriter& ProtobufWriter::text(int field, std::string_view value) {
  tag(field, kLength);
  varint(value.size());
  bytes_ += value;
  return *this;
}

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFFu);
  return text;
}

std::uint32_t crc32(std::string_view data, std::uint32_t crc) { return crc_of(kZlibTable, data, crc); }
std::uint32_t crc32c(std::string_view data, std::uint32_t crc) { return crc_of(kCastagnoliTable, data, crc); }

}  // namespace hone
