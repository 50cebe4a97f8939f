// UTF-8, properties of code points, normalization and letter case, with the results of the libraries that hone must
// match: Python's str and Hugging Face tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

// General category of a code point. The order is the one of the generated table: Cn first, then alphabetical.
enum class Category : std::uint8_t {
  kCn,
  kCc,
  kCf,
  kCo,
  kCs,
  kLl,
  kLm,
  kLo,
  kLt,
  kLu,
  kMc,
  kMe,
  kMn,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPe,
  kPf,
  kPi,
  kPo,
  kPs,
  kSc,
  kSk,
  kSm,
  kSo,
  kZl,
  kZp,
  kZs,
};
inline constexpr int kCategoryCount = 30;

class Properties {
 public:
  explicit constexpr Properties(std::uint16_t bits) : bits_(bits) {}
  [[nodiscard]] constexpr Category category() const { return static_cast<Category>(bits_ & 0x1F); }
  [[nodiscard]] constexpr bool pattern_space() const { return (bits_ & 0x20) != 0; }  // \s of split patterns
  [[nodiscard]] constexpr bool white_space() const { return (bits_ & 0x40) != 0; }    // the property White_Space
  [[nodiscard]] constexpr bool word() const { return (bits_ & 0x80) != 0; }           // word character (single_word)
  [[nodiscard]] constexpr bool numeric() const { return (bits_ & 0x100) != 0; }       // for the pre-tokenizer Digits
  [[nodiscard]] constexpr bool printable() const { return (bits_ & 0x200) != 0; }     // not escaped by Python's repr
  [[nodiscard]] constexpr bool punctuation() const { return (bits_ & 0x400) != 0; }   // for pre-tokenizer Punctuation
  [[nodiscard]] constexpr bool accent() const { return (bits_ & 0x800) != 0; }        // for the normalizer StripAccents

 private:
  std::uint16_t bits_;
};
[[nodiscard]] Properties properties_of(char32_t code_point);

struct CodePoint {
  char32_t value;
  unsigned size;  // bytes
};
// Decodes the code point that starts at `at`. `text` must be valid UTF-8 and `at` the start of one of its characters.
[[nodiscard]] inline CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
// Returns the start of the character before position `at` > 0. `text` must be valid UTF-8.
[[nodiscard]] std::size_t previous_utf8(std::string_view text, std::size_t at);
void append_utf8(std::string& text, char32_t code_point);
[[nodiscard]] std::size_t count_code_points(std::string_view text);  // `text` must be valid UTF-8

// Result of scanning bytes that may not be UTF-8. Invalid bytes are grouped by the Unicode standard's "substitution of
// maximal subparts", as Python and Rust do: each group becomes one replacement character.
struct Utf8Unit {
  unsigned size;  // bytes
  bool valid;     // a complete character
  bool cut;       // the beginning of a character that continues beyond the end of the text
};
[[nodiscard]] Utf8Unit scan_utf8(std::string_view text, std::size_t at);
[[nodiscard]] bool is_valid_utf8(std::string_view text);
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD
// Replaces each invalid sequence by U+FFFD, as Python's bytes.decode(errors='replace') does.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

// Normalization forms and letter case. `text` must be valid UTF-8.
[[nodiscard]] std::string normalize_nfc(std::string_view text);
[[nodiscard]] std::string normalize_nfd(std::string_view text);
[[nodiscard]] std::string normalize_nfkc(std::string_view text);
[[nodiscard]] std::string normalize_nfkd(std::string_view text);
[[nodiscard]] std::string to_lower_token(std::string_view text);  // as the normalizer Lowercase
[[nodiscard]] std::string to_lower(std::string_view text);        // as Python's str.lower, except the final sigma
[[nodiscard]] std::string to_upper(std::string_view text);        // as Python's str.upper

}  // namespace hone
