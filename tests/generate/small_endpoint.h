// OpenAI-compatible server on the loopback interface, with configurable faults.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/loopback.h"

namespace hone::test {

class SmallEndpoint {
 public:
  SmallEndpoint() = default;
  SmallEndpoint(const SmallEndpoint&) = delete;
  SmallEndpoint& operator=(const SmallEndpoint&) = delete;
  ~SmallEndpoint();

  [[nodiscard]] std::string url() const { return server_.url(); }

  // Behaviour; set before the first request.
  std::string needed_key;             // requests without this key are answered with status 401
  std::string retry_after;            // header of answers with status 429
  std::atomic<int> busy = 0;          // number of answers with status 429
  std::atomic<int> cut = 0;           // number of answers in which the connection is closed
  std::atomic<int> nonsense = 0;      // number of answers with status 200 and an HTML page
  std::atomic<int> slow = 0;          // number of requests that are answered only after a further request
  std::atomic<int> stops_after = -1;  // number of requests after which all are answered with status 500; -1: never
  std::atomic<int> gathers = 0;       // number of requests to collect before any is answered
  std::string message;                // JSON sent instead of {"content": "MODEL SEED: PROMPT"}
  bool counts_tokens = true;          // answers contain the number of tokens
  bool closes = false;                // close the connection after each answer

  [[nodiscard]] std::vector<Json> requests();  // bodies of the requests, in order
  [[nodiscard]] int most_at_once() const { return server_.most_at_once(); }
  [[nodiscard]] int connections() const { return server_.connections(); }

 private:
  [[nodiscard]] std::string answer(const LoopbackRequest& request);
  [[nodiscard]] std::string completion_of(const Json& request) const;

  std::mutex mutex_;
  std::condition_variable asked_;  // notified after each request and at the end
  bool is_over_ = false;
  std::vector<Json> requests_;
  Loopback server_{[this](const LoopbackRequest& request) { return answer(request); }};
};

}  // namespace hone::test
