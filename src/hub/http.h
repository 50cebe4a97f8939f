// Requests over HTTP, through libcurl, which is opened at the first.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace hone {

struct HttpRequest {
  std::string url;
  std::string token;       // sent to the host of `url` alone
  bool head = false;       // ask for the headers alone
  std::int64_t from = 0;   // ask for the bytes from here on
  std::int64_t most = -1;  // give up where the body is longer; -1: any length
  // Takes a piece of the body of an answer 200 or 206; may throw, which ends the request. Unset: the body is kept.
  std::function<void(const struct HttpAnswer& answer, std::string_view piece)> take;
};

struct HttpAnswer {
  long status = 0;                             // 0: there was no answer
  std::map<std::string, std::string> headers;  // names in lower case; of several hops the first that said it
  std::string body;                            // what `take` did not take; of an error at most 64 KiB
  bool is_too_long = false;                    // the body has more than `most` bytes
  std::string failure;                         // why there is no whole answer; empty where there is one
};

// Follows redirections. Gives up where nothing comes for 30 seconds. Throws Error where libcurl cannot be opened,
// Interrupted after Ctrl+C, and what `take` throws.
[[nodiscard]] HttpAnswer http_get(const HttpRequest& request);

struct HttpPost {
  std::string url;
  std::string token;  // sent to the host of `url` alone
  std::string body;
  std::string content_type = "application/json";
  std::string accept = {};                                      // the header of that name; empty: any
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};  // for the whole answer
  std::int64_t most = -1;                        // give up where the answer's body is longer; -1: any length
  const std::atomic<bool>* cancelled = nullptr;  // the request ends when it becomes true
};
// Follows no redirections. Throws as http_get does. Thread-safe, as http_get is.
[[nodiscard]] HttpAnswer http_post(const HttpPost& request);

// A body that is read while it is sent, for storage: no token goes along.
struct HttpPut {
  std::string url;
  std::map<std::string, std::string> headers;  // besides what all requests have
  std::int64_t size = 0;                       // bytes of the body
  // Fills as much of `buffer` as there is from `offset` on, at least a byte; may throw, which ends the request.
  std::function<std::size_t(std::int64_t offset, std::span<char> buffer)> read;
};
// Follows no redirections. Gives up where nothing moves for two minutes. Throws as http_get does, and what `read`
// throws.
[[nodiscard]] HttpAnswer http_put(const HttpPut& request);

// "/" stays; all but letters, digits, "-", "_", "." and "~" is escaped.
[[nodiscard]] std::string url_escaped(std::string_view text);

// Scheme, host and port of a URL ("https://host:8000"), in lower case, without a user: who may see a token, and whose
// connection may be used again. Empty where the URL names no scheme.
[[nodiscard]] std::string origin_of(std::string_view url);

}  // namespace hone
