// Client of servers with OpenAI's API: URLs, retries, and the meaning of refusals.
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

// Returns the root of the API: `endpoint`, with /v1 appended unless it has another path. Throws Error that names the
// option `key` if `endpoint` is not an http(s) URL.
[[nodiscard]] std::string api_url(const std::string& endpoint, std::string_view key);
// Returns the root of the server itself: the API's root without /v1.
[[nodiscard]] std::string server_url(const std::string& endpoint, std::string_view key);

// Returns the message of a refusal: that of OpenAI's error object, otherwise the start of the body.
[[nodiscard]] std::string error_message(const std::string& body);

// A complete answer that is wrong in a way that no retry would fix.
class WrongAnswer : public Error {
 public:
  using Error::Error;
};

// Every try of one request got a complete answer, but none had the expected form. Other requests may still succeed.
class MalformedAnswers : public Error {
 public:
  using Error::Error;
};

// The request was cancelled because another one failed.
struct Cancelled {};

struct EndpointOptions {
  std::string token;                                            // API key; may be empty
  std::string token_help;                                       // advice if the server rejects the key
  std::string not_found_help;                                   // advice if the path does not exist
  std::string retries_exhausted_help;                           // advice if all tries failed
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};  // limit for one try
  std::int64_t retries = 8;                                     // retries after the first try
  std::chrono::milliseconds patience{0};  // retries continue until this time has passed, even beyond `retries`
  // May be null; requests end with Cancelled when it becomes true.
  const std::atomic<bool>* cancelled = nullptr;
};

// Logs temporary failures on standard error: the first immediately, then a line from time to time while failures
// continue, regardless of the number of requests affected. Thread-safe.
class FailureNotices {
 public:
  struct Failure {
    const std::string& url;
    const std::string& problem;
    std::int64_t tries = 1;
    std::int64_t most = 0;  // maximum number of tries; 0: limited by time
  };
  // Logs "URL: gives no answer: ...; try 1 of 9, the next in 0.25 s" if a line is due at `now`, and returns true if it
  // did.
  bool say(const Failure& failure, std::chrono::steady_clock::time_point now, std::chrono::milliseconds until_next);

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point said_{};
};

// Sends requests to one server. Thread-safe.
class EndpointClient {
 public:
  explicit EndpointClient(EndpointOptions options) : options_(std::move(options)) {}

  // Posts JSON and passes the body of an answer with status 200 to `read`. A request is repeated if it gets no answer
  // or status 408, 429 or 5xx, or if `read` rejects the body by throwing Error or Json::exception (`wanted` names the
  // expected content in messages). Pauses between tries double, or are those that the server requests; FailureNotices
  // reports them. Returns the reason if the server refuses only this request (400, 413, 422), or "" after success.
  // Throws Error if the server refuses all requests, if all tries failed, or if `read` throws WrongAnswer;
  // MalformedAnswers if `read` rejected the answer of every try; Interrupted; Cancelled.
  [[nodiscard]] std::string post(const std::string& url, const std::string& body, std::string_view wanted,
                                 const std::function<void(const std::string& body)>& read) const;
  // Gets a URL in the same way, except that each try ends after 30 seconds without data.
  [[nodiscard]] std::string get(const std::string& url, std::string_view wanted,
                                const std::function<void(const std::string& body)>& read) const;

 private:
  [[nodiscard]] std::string ask(const std::string& url, const std::function<struct HttpAnswer()>& send,
                                std::string_view wanted,
                                const std::function<void(const std::string& body)>& read) const;
  [[nodiscard]] bool sleep(std::chrono::milliseconds pause, const std::string& url, const std::string& problem,
                           std::int64_t tries) const;
  void throw_if_over() const;

  EndpointOptions options_;
  mutable FailureNotices notices_;
};

// Calls `step` on `threads` threads until it returns false. `step` sends one request and returns true if there are
// more. The first exception sets `cancelled`, which ends the requests of the other threads
// (EndpointOptions::cancelled), and is rethrown when all threads have ended; `cancelled` is then false again.
void run_requests(std::size_t threads, std::atomic<bool>& cancelled, const std::function<bool()>& step);

}  // namespace hone
