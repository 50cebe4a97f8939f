// Requests that change something on the hub: what they have in common.
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

// The hub says no, or says nothing. One line, in which the token never is.
class HubRefusal : public Error {
 public:
  HubRefusal(long status, std::string_view where, std::string_view what, std::string_view fix)
      : Error(where, what, fix), status_(status) {}
  [[nodiscard]] long status() const { return status_; }  // 0: there was no answer

 private:
  long status_;
};

struct HubPatience {
  int tries = 8;  // of a request that a repetition may mend
  std::chrono::milliseconds first_pause{500};
};

// models/Org/Name, datasets/Org/Name.
[[nodiscard]] std::string api_path(const HubRepo& repo);
// A revision as a part of a URL: its slashes are escaped too.
[[nodiscard]] std::string escaped_revision(std::string_view revision);

class HubApi {
 public:
  HubApi(std::string token, HubPatience patience) : token_(std::move(token)), patience_(patience) {}

  [[nodiscard]] const HubPatience& patience() const { return patience_; }

  struct Call {
    std::string url;     // whole; the token goes along where it is the endpoint's
    std::string body;    // empty: a GET
    std::string action;  // "create the repository": for a refusal, "the hub refuses to ACTION"
    std::string where;   // what it is about, as an error names it
    std::string content_type = "application/json";
    std::string accept = {};
    bool is_public = false;                           // no token even for the endpoint
    bool (*is_passing)(const HttpAnswer&) = nullptr;  // what else a repetition may mend
  };
  // Asks again, after pauses that double, where there is no whole answer, at 408, 429 and 5xx. Throws HubRefusal,
  // Interrupted.
  [[nodiscard]] HttpAnswer call(const Call& call) const;
  // The JSON that it answers.
  [[nodiscard]] Json json(const Call& call) const;

  // Throws for an answer that is not good.
  [[noreturn]] void fail(const Call& call, const HttpAnswer& answer, int tries) const;

 private:
  [[nodiscard]] std::string without_token(std::string text) const;

  std::string token_;
  HubPatience patience_;
};

// Whether a repetition of a request may be answered better.
[[nodiscard]] bool may_pass(const HttpAnswer& answer);
[[nodiscard]] bool is_good(const HttpAnswer& answer);

}  // namespace hone
