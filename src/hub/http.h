// HTTP requests through libcurl, which is loaded at the first request.
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

// A GET or HEAD request.
struct HttpRequest {
  std::string url;
  std::string token;       // sent only to the host of `url`
  bool head = false;       // request only the headers
  std::int64_t from = 0;   // request the bytes from this offset
  std::int64_t most = -1;  // abort if the body is longer; -1: no limit
  // Receives each piece of the body of an answer with status 200 or 206; an exception from it ends the request. If
  // unset, the body is stored in HttpAnswer::body.
  std::function<void(const struct HttpAnswer& answer, std::string_view piece)> take;
};

struct HttpAnswer {
  long status = 0;                             // 0: no answer
  std::map<std::string, std::string> headers;  // names in lower case; after redirections, the first value of each
  std::string body;                            // the part that `take` did not receive; for an error at most 64 KiB
  bool is_too_long = false;                    // the body is longer than `most` bytes
  std::string failure;                         // reason why there is no complete answer; empty if there is one
};

// Sends a GET or HEAD request and follows redirections. Gives up after 30 seconds without data. Throws Error if libcurl
// cannot be loaded, Interrupted after Ctrl+C, and any exception from `take`.
[[nodiscard]] HttpAnswer http_get(const HttpRequest& request);

struct HttpPost {
  std::string url;
  std::string token;  // sent only to the host of `url`
  std::string body;
  std::string content_type = "application/json";
  std::string accept = {};                                      // Accept header; empty: any
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};  // limit for the complete answer
  std::int64_t most = -1;                        // abort if the body of the answer is longer; -1: no limit
  const std::atomic<bool>* cancelled = nullptr;  // ends the request when it becomes true
  // As in HttpRequest.
  std::function<void(const HttpAnswer& answer, std::string_view piece)> take = {};
};
// Sends a POST request. Does not follow redirections. Throws like http_get. Thread-safe, like http_get.
[[nodiscard]] HttpAnswer http_post(const HttpPost& request);

// An upload to storage, whose body is read while it is sent. It carries no token.
struct HttpPut {
  std::string url;
  std::map<std::string, std::string> headers;  // in addition to those of all requests
  std::int64_t size = 0;                       // bytes of the body
  // Reads at least one byte of the body from `offset` into `buffer` and returns the number of bytes; an exception from
  // it ends the request.
  std::function<std::size_t(std::int64_t offset, std::span<char> buffer)> read;
};
// Sends a PUT request. Does not follow redirections. Gives up after two minutes without progress. Throws like http_get,
// and any exception from `read`.
[[nodiscard]] HttpAnswer http_put(const HttpPut& request);

}  // namespace hone
