// Requests to a server of OpenAI's kind: its URL, what is tried again, and what its refusals mean.
// Source: https://platform.openai.com/docs/api-reference
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "core/error.h"

namespace hone {

// The root of the API: `endpoint` itself, with /v1 unless it has another path. Throws Error that names `key` for what
// is no http(s) URL.
[[nodiscard]] std::string api_url(const std::string& endpoint, std::string_view key);
// Where the server itself is: without /v1.
[[nodiscard]] std::string server_url(const std::string& endpoint, std::string_view key);

// A whole answer that no repetition would mend.
class WrongAnswer : public Error {
 public:
  using Error::Error;
};

// Whole answers to every try of one request, none of which was what was wanted: other requests may fare better.
class MalformedAnswers : public Error {
 public:
  using Error::Error;
};

// The request was given up because another one has failed.
struct Cancelled {};

struct EndpointOptions {
  std::string token;                                            // the API's key, or none
  std::string token_help;                                       // what to do where it is refused
  std::string not_found_help;                                   // where there is no such path
  std::string given_up_help;                                    // where the server was tried in vain
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};  // of one try
  std::int64_t retries = 8;                                     // after the first try, and more until `patience`
  std::chrono::milliseconds patience{0};                        // has passed since then
  const std::atomic<bool>* cancelled = nullptr;
};

// Says on standard error what fails in passing: the first failure at once, then a line now and then for as long as
// something fails, whatever number of requests it concerns. Thread-safe.
class FailureNotices {
 public:
  struct Failure {
    const std::string& url;
    const std::string& problem;
    std::int64_t tries = 1;
    std::int64_t most = 0;  // tries; 0: a time limits them
  };
  // "URL: gives no answer: ...; try 1 of 9, the next in 0.25 s". Says it where a line is due at `now`, and returns
  // whether it was.
  bool say(const Failure& failure, std::chrono::steady_clock::time_point now, std::chrono::milliseconds until_next);

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point said_{};
};

// Thread-safe.
class EndpointClient {
 public:
  explicit EndpointClient(EndpointOptions options) : options_(std::move(options)) {}

  // Posts JSON and hands the body of an answer 200 to `read`. A request without an answer, answered 408, 429 or 5xx, or
  // whose answer `read` does not take (it throws Error or Json::exception; `wanted`: what it was to be) is sent again
  // after a pause, which doubles or is the server's; that is said (FailureNotices). Returns why the server refuses this
  // one request (400, 413, 422), empty where it was answered. Throws Error where it refuses all or was tried in vain,
  // MalformedAnswers where `read` took none of its answers, WrongAnswer as `read` does, Interrupted, Cancelled.
  [[nodiscard]] std::string post(const std::string& url, const std::string& body, std::string_view wanted,
                                 const std::function<void(const std::string& body)>& read) const;

 private:
  [[nodiscard]] bool sleep(std::chrono::milliseconds pause, const std::string& url, const std::string& problem,
                           std::int64_t tries) const;
  void throw_if_over() const;

  EndpointOptions options_;
  mutable FailureNotices notices_;
};

// Calls `step`, which makes a request and says whether there are more, on `threads` threads until it says no. What is
// thrown first sets `cancelled`, which ends the others' requests (EndpointOptions::cancelled), and is thrown again when
// all have ended; `cancelled` is false then.
void run_requests(std::size_t threads, std::atomic<bool>& cancelled, const std::function<bool()>& step);

}  // namespace hone
