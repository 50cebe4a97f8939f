#include "text/byte_alphabet.h"

#include <array>

#include "core/unicode.h"

namespace hone {
namespace {

// Printable Latin-1 characters represent themselves; the other bytes are mapped to U+0100 and following, in order.
struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int, 512> bytes{};
  constexpr Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t c = printable ? byte : next++;
      characters[byte] = c;
      bytes[c] = static_cast<int>(byte);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_character(unsigned char byte) { return kAlphabet.characters[byte]; }

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(text, byte_character(static_cast<unsigned char>(byte)));
  return text;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    if (c >= kAlphabet.bytes.size() || kAlphabet.bytes[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[c]));
    at += size;
  }
  return bytes;
}

}  // namespace hone
