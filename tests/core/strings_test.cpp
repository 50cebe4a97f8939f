#include "core/strings.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/log.h"

namespace hone {
namespace {

TEST(Strings, SizesInBytes) {
  EXPECT_EQ(parse_bytes("80GiB"), std::uint64_t{80} << 30);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_bytes("1.5 kib"), 1536u);
  EXPECT_EQ(parse_bytes("200"), 200u);
  for (const char* bad : {"", "GiB", "lots", "-1GB", "0", "1GBs", "1e400", "nan", "inf", "5PB", "1000000000GB"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(Strings, PagesShowTextAsItIs) {
  EXPECT_EQ(html_text("<a href=\"x\">1 & 2</a>"), "&lt;a href=&quot;x&quot;&gt;1 &amp; 2&lt;/a&gt;");
}

TEST(Printable, LeavesNothingThatMovesTheCursor) {
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(printable("\x1b]0;mine\x07"), "\\x1b]0;mine\\x07");
  EXPECT_EQ(printable("50%\rhone: done\x7f\b"), "50%\\x0dhone: done\\x7f\\x08");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "\\x9b2J");  // the control sequence introducer as one character
  EXPECT_EQ(printable("a\xE2\x80\xAE"
                      "b\xE2\x81\xA6"),
            "a\\u202eb\\u2066");  // an override and an isolate of the writing direction
  EXPECT_EQ(printable("Grüße, 数学 𝔽 π"), "Grüße, 数学 𝔽 π");
  EXPECT_EQ(printable("\xFF\xC3"), "\\xff\\xc3");           // not UTF-8
  EXPECT_EQ(printable("\xE0\x80\x9B"), "\\xe0\\x80\\x9b");  // overlong encoding of a control character
  EXPECT_EQ(printable("a\tb\x1b[0m\r\n\x7f"), "a\tb\\x1b[0m\\x0d\n\\x7f");
  EXPECT_EQ(printable("31m \xff \xe6\x97"), "31m \\xff \\xe6\\x97");
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable_line("a\r\nb\tc\x1b"), "a  b c\\x1b");
}

TEST(Printable, IsWhatMessagesShow) {
  testing::internal::CaptureStderr();
  log_warning("it said: \x1b[2J\nhone: error: forged");
  log_info("two\nlines");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "hone: warning: it said: \\x1b[2J\n  hone: error: forged\nhone: two\n  lines\n");
  EXPECT_STREQ(Error("file", "holds \x1b[2J\nand more").what(), "file: holds \\x1b[2J and more");
}

}  // namespace
}  // namespace hone
