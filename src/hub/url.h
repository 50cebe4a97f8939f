// URLs. libcurl takes them apart, so that a decision made here (which host receives a token, which connection can be
// reused) is made about the host that libcurl will contact.
// Source: RFC 3986; https://curl.se/libcurl/c/libcurl-url.html
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct Curl_URL;  // CURLU in libcurl's headers

namespace hone {

// An absolute URL of any scheme. Its scheme and its host are in lower case.
class Url {
 public:
  // Returns nullopt if `text` is not an absolute URL: without a scheme, or with an impossible host or port. Throws
  // Error if libcurl cannot be loaded.
  [[nodiscard]] static std::optional<Url> parse(std::string_view text);

  [[nodiscard]] bool is_http() const;  // true for http and https
  // Scheme, host and, if the URL names one, port: "https://host:8000". User and password are not part of it.
  [[nodiscard]] std::string origin() const;
  [[nodiscard]] std::string host() const;  // a name, four numbers, or an IPv6 address in brackets
  [[nodiscard]] std::string path() const;  // without slashes at its end, so empty for the root
  void set_path(const std::string& path);
  // The whole URL, with user and password. Has no slash after the host if path and query are empty.
  [[nodiscard]] std::string text() const;

 private:
  Url();

  std::unique_ptr<Curl_URL, void (*)(Curl_URL*)> handle_;
};

// Returns Url::origin(), which decides which hosts receive a token and which connections can be reused. Empty if `url`
// is not an absolute URL.
[[nodiscard]] std::string origin_of(std::string_view url);

// Percent-escapes a path: all characters except letters, digits, "/", "-", "_", "." and "~".
[[nodiscard]] std::string url_escaped(std::string_view text);

}  // namespace hone
