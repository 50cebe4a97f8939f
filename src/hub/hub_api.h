// Requests that modify the hub: authentication, retries and error messages.
// Source: https://huggingface.co/docs/hub/api
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "hub/cache.h"
#include "hub/http.h"

namespace hone {

// The hub refuses a request or does not answer. The message is one line and never contains the token.
class HubRefusal : public Error {
 public:
  HubRefusal(long status, std::string_view where, std::string_view what, std::string_view fix)
      : Error(where, what, fix), status_(status) {}
  [[nodiscard]] long status() const { return status_; }  // 0: no answer

 private:
  long status_;
};

// Retry policy.
struct RetryPolicy {
  int tries = 8;  // for a request that may succeed when repeated
  std::chrono::milliseconds first_pause{500};
};

// Path of a repository in the API: models/Org/Name, datasets/Org/Name.
[[nodiscard]] std::string api_path(const HubRepo& repo);
// A revision as one URL path segment; its slashes are escaped too.
[[nodiscard]] std::string escaped_revision(std::string_view revision);

// Sends requests to the hub with one token.
class HubApi {
 public:
  HubApi(std::string token, RetryPolicy patience) : token_(std::move(token)), patience_(patience) {}

  [[nodiscard]] const RetryPolicy& patience() const { return patience_; }

  struct Call {
    std::string url;     // complete URL; the token is sent only to the hub's endpoint
    std::string body;    // empty: a GET request
    std::string action;  // completes the error message "the hub refuses to ACTION": "create the repository"
    std::string where;   // subject of the request, with which error messages begin
    std::string content_type = "application/json";
    std::string accept = {};
    bool is_public = false;                           // send no token, even to the endpoint
    bool (*is_passing)(const HttpAnswer&) = nullptr;  // recognizes further answers that are worth a retry
  };
  // Sends the request. Retries after pauses that double if there is no complete answer, or at status 408, 429 and 5xx.
  // Throws HubRefusal, Interrupted.
  [[nodiscard]] HttpAnswer call(const Call& call) const;
  // Sends the request and returns the JSON object of the answer.
  [[nodiscard]] Json json(const Call& call) const;

  // Throws HubRefusal that describes an unsuccessful answer.
  [[noreturn]] void fail(const Call& call, const HttpAnswer& answer, int tries) const;

 private:
  [[nodiscard]] std::string without_token(std::string text) const;

  std::string token_;
  RetryPolicy patience_;
};

// Returns true if the request may succeed when repeated.
[[nodiscard]] bool is_retryable(const HttpAnswer& answer);
[[nodiscard]] bool is_good(const HttpAnswer& answer);

}  // namespace hone
