#include "core/unicode.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Unicode, ReplacesMaximalSubparts) {
  // Results of Python's bytes.decode(errors='replace'), with "?" in place of U+FFFD.
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"\xE2\x82", "?"},       {"\xE2\x28\xA1", "?(?"},
      {"\xED\xA0\x80", "???"}, {"\xF4\x90\x80\x80", "????"},
      {"\xF0\x9F\x99", "?"},   {"\xC0\xAF", "??"},
      {"a\x80", "a?"},         {"\xF0\x9F\x99\x82", "\xF0\x9F\x99\x82"},
      {"\xE0\x80\xAF", "???"}, {"\xC3\xC3\xA9", "?é"},
  };
  for (const auto& [bytes, wanted] : cases) {
    std::string expected;
    for (const char c : wanted) expected += c == '?' ? std::string(kReplacementCharacter) : std::string(1, c);
    EXPECT_EQ(replace_invalid_utf8(bytes), expected) << testing::PrintToString(bytes);
  }
}

TEST(Unicode, EncodesWhatItDecodes) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x1000 ? 1 : 37) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(decode_utf8(text, 0).value, c);
    EXPECT_EQ(decode_utf8(text, 0).size, text.size());
  }
}

TEST(Unicode, NormalizesToNfcAndNfd) {
  EXPECT_EQ(normalize_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(normalize_nfc("a\u0327\u0301"), "\u00e1\u0327");  // the cedilla does not block the accent
  EXPECT_EQ(normalize_nfc("a\u0301\u0327"), "\u00e1\u0327");
  EXPECT_EQ(normalize_nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(normalize_nfc("\u212b"), "\u00c5");
  EXPECT_EQ(normalize_nfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(normalize_nfc("a\u0315\u0300\u05ae\u0300"), "\u00e0\u05ae\u0300\u0315");
  EXPECT_EQ(normalize_nfd("\ud55c\u00e9"), "\u1112\u1161\u11abe\u0301");
}

TEST(Unicode, ChangesCase) {
  EXPECT_EQ(to_upper("stra\u00dfe \u03b1z"), "STRASSE \u0391Z");
  EXPECT_EQ(to_lower("\u00c9COLE \u042f"), "\u00e9cole \u044f");
}

}  // namespace
}  // namespace hone
