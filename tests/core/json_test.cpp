// Tests of the texts that parse_json rejects and of its messages.
#include "core/json.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace hone {
namespace {

std::string json_error(const std::string& text) {
  try {
    (void)parse_json(text, "f.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}

TEST(Json, ErrorsNameThePlace) {
  EXPECT_EQ(json_error("{\"a\": 1,\n \"b\": }"), "f.json: not valid JSON at line 2, column 7");
  EXPECT_EQ(json_error(""), "f.json: not valid JSON at line 1, column 1");
  EXPECT_THAT(json_error("[1e999]"), testing::HasSubstr("a number is out of range"));
}

TEST(Json, DepthIsBounded) {
  EXPECT_EQ(json_error(nested(kMaxJsonDepth)), "no error");
  EXPECT_THAT(json_error(nested(kMaxJsonDepth + 1)), testing::HasSubstr("nested deeper than 256"));
  EXPECT_EQ(json_error("[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"]"), "no error");
  std::string list = "[";
  for (int i = 0; i < 1000; ++i) list += "[{}],";
  EXPECT_EQ(json_error(list + "0]"), "no error");
}

TEST(Error, IsOneLine) {
  EXPECT_STREQ(Error("a\nb").what(), "a b");
  EXPECT_STREQ(Error("file\n", "bad \x01 value", "fix\tit").what(), "file : bad \\x01 value (fix it)");
  EXPECT_STREQ(Error("caf\xC3\xA9").what(), "caf\xC3\xA9");
}

}  // namespace
}  // namespace hone
