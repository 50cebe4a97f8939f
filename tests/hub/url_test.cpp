// Tests of URLs and of the origins that decide who receives a token.
#include "hub/url.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

using namespace std::string_view_literals;

std::string text_of_url(std::string_view text) {
  const std::optional<Url> url = Url::parse(text);
  return url ? url->text() : "no URL";
}

TEST(Origin, IsTheUrlUpToItsPath) {
  EXPECT_EQ(origin_of("https://a:8000/v1/x?y=z"), "https://a:8000");
  EXPECT_EQ(origin_of("http://a"), "http://a");
  EXPECT_EQ(origin_of("http://a?x=http://b/"), "http://a");
  EXPECT_EQ(origin_of("http://a#http://b/"), "http://a");
  EXPECT_EQ(origin_of("http://a/b@c"), "http://a");
  EXPECT_EQ(origin_of("ftp://a/b"), "ftp://a");
}

TEST(Origin, IsInLowerCase) {
  EXPECT_EQ(origin_of("HTTPS://Hub.Co:443/A/B"), "https://hub.co:443");
  EXPECT_EQ(origin_of("http://[FE80::1]:8000/X"), "http://[fe80::1]:8000");
  EXPECT_EQ(origin_of("http://[FE80::1%25eth0]/X"), "http://[fe80::1%25eth0]");
  EXPECT_EQ(origin_of("http://[::1]"), "http://[::1]");
}

TEST(Origin, HasNoUserAndNoPassword) {
  EXPECT_EQ(origin_of("http://user:word@hub.co:80/a@b"), "http://hub.co:80");
  EXPECT_EQ(origin_of("http://hub.co%40evil.com/"), "") << "an escaped @ is not a user";
  EXPECT_EQ(origin_of("http://hub.co:word@evil.com/"), "http://evil.com");
}

TEST(Origin, IsEmptyWithoutAUrl) {
  for (const std::string_view text : {""sv, "a"sv, "hub.co/a"sv, "localhost:8000"sv, "mailto:a@b"sv, "://a"sv,
                                      "http://"sv, "https:///"sv, "http://a:b/"sv, "http://a:99999/"sv, "http://a b/"sv,
                                      "http://a\nb/"sv, "http://a\0.b/"sv, "http://a@b@c/"sv}) {
    EXPECT_EQ(origin_of(text), "") << text;
    EXPECT_FALSE(Url::parse(text)) << text;
  }
}

TEST(Url, TextIsWhatWasParsed) {
  EXPECT_EQ(text_of_url("http://a"), "http://a");
  EXPECT_EQ(text_of_url("http://a/"), "http://a");
  EXPECT_EQ(text_of_url("http://a:8000/b/C%20d?e=f/#g/"), "http://a:8000/b/C%20d?e=f/#g/");
  EXPECT_EQ(text_of_url("http://a?b=/"), "http://a/?b=/");
  EXPECT_EQ(text_of_url("HTTP://User:Word@Host/Path"), "http://User:Word@host/Path");
  EXPECT_EQ(text_of_url("http://[FE80::1%25eth0]:1/"), "http://[fe80::1%25eth0]:1");
}

TEST(Url, HasAHost) {
  EXPECT_EQ(Url::parse("http://user:word@Hub.Co:8000/a")->host(), "hub.co");
  EXPECT_EQ(Url::parse("https://127.0.0.1")->host(), "127.0.0.1");
  EXPECT_EQ(Url::parse("http://[::1]:8000")->host(), "[::1]");
}

TEST(Url, KnowsHttp) {
  EXPECT_TRUE(Url::parse("http://a")->is_http());
  EXPECT_TRUE(Url::parse("HTTPS://a")->is_http());
  EXPECT_FALSE(Url::parse("ftp://a")->is_http());
  EXPECT_FALSE(Url::parse("file:///a")->is_http());
}

TEST(Url, PathsChange) {
  std::optional<Url> url = Url::parse("http://user@a:8000/v1//?x=y");
  EXPECT_EQ(url->path(), "/v1");
  url->set_path("/v2/z");
  EXPECT_EQ(url->text(), "http://user@a:8000/v2/z?x=y");
  url = Url::parse("http://a/v1/");
  url->set_path("");
  EXPECT_EQ(url->path(), "");
  EXPECT_EQ(url->text(), "http://a");
}

TEST(UrlEscaped, KeepsThePathsSlashes) {
  EXPECT_EQ(url_escaped("a/b-c_d.e~f"), "a/b-c_d.e~f");
  EXPECT_EQ(url_escaped("a b%c?d#e+f"), "a%20b%25c%3Fd%23e%2Bf");
  EXPECT_EQ(url_escaped("\xC3\xA4"), "%C3%A4");
}

}  // namespace
}  // namespace hone::test
