// UTF-8, the properties of code points, normalisation and letter case, as the reference libraries see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

// In alphabetical order, as in the generated table.
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
  [[nodiscard]] constexpr bool word() const { return (bits_ & 0x80) != 0; }           // part of a word (single_word)
  [[nodiscard]] constexpr bool numeric() const { return (bits_ & 0x100) != 0; }       // of the pre-tokenizer Digits
  [[nodiscard]] constexpr bool printable() const { return (bits_ & 0x200) != 0; }     // as Python's repr decides
  [[nodiscard]] constexpr bool punctuation() const { return (bits_ & 0x400) != 0; }  // of the pre-tokenizer Punctuation
  [[nodiscard]] constexpr bool accent() const { return (bits_ & 0x800) != 0; }       // of the normalizer StripAccents

 private:
  std::uint16_t bits_;
};
[[nodiscard]] Properties properties_of(char32_t code_point);

struct CodePoint {
  char32_t value;
  unsigned size;  // bytes
};
// The code point that starts at `at`. `text` must be valid UTF-8 and `at` the start of one of its characters.
[[nodiscard]] inline CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
// The start of the character that ends at `at` > 0 in valid UTF-8.
[[nodiscard]] std::size_t previous_utf8(std::string_view text, std::size_t at);
void append_utf8(std::string& text, char32_t code_point);
[[nodiscard]] std::size_t count_code_points(std::string_view text);  // of valid UTF-8

// What stands at `at`: a whole character (valid), a part of one that the text's end cuts off (cut), or `size` bytes
// that begin none. Follows the Unicode standard's substitution of maximal subparts, as Python and Rust do.
struct Utf8Unit {
  unsigned size;
  bool valid;
  bool cut;
};
[[nodiscard]] Utf8Unit scan_utf8(std::string_view text, std::size_t at);
[[nodiscard]] bool is_valid_utf8(std::string_view text);
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD
// As Python's bytes.decode(errors='replace').
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

// Of valid UTF-8.
[[nodiscard]] std::string normalize_nfc(std::string_view text);
[[nodiscard]] std::string normalize_nfd(std::string_view text);
[[nodiscard]] std::string normalize_nfkc(std::string_view text);
[[nodiscard]] std::string normalize_nfkd(std::string_view text);
[[nodiscard]] std::string to_lower_token(std::string_view text);  // of the normalizer Lowercase
[[nodiscard]] std::string to_lower(std::string_view text);        // these two as Python's str has them
[[nodiscard]] std::string to_upper(std::string_view text);

}  // namespace hone
