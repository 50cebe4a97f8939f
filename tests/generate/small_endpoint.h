// An OpenAI-compatible server on loopback, with the faults that a test asks for.
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

  // What is to happen; set before requests.
  std::string needed_key;             // 401 without it
  std::string retry_after;            // with an answer 429
  std::atomic<int> busy = 0;          // answers 429 so many times
  std::atomic<int> cut = 0;           // closes the connection in the middle of so many answers
  std::atomic<int> nonsense = 0;      // answers 200 with a page so many times
  std::atomic<int> slow = 0;          // answers so many times only when it is asked again
  std::atomic<int> stops_after = -1;  // answers 500 from then on; -1: never
  std::atomic<int> gathers = 0;       // answers nothing before it has so many requests
  std::string message;                // JSON, sent in place of {"content": "MODEL SEED: PROMPT"}
  bool counts_tokens = true;
  bool closes = false;  // the connection after each answer

  [[nodiscard]] std::vector<Json> requests();  // bodies, in order
  [[nodiscard]] int most_at_once() const { return server_.most_at_once(); }
  [[nodiscard]] int connections() const { return server_.connections(); }

 private:
  [[nodiscard]] std::string answer(const LoopbackRequest& request);
  [[nodiscard]] std::string completion_of(const Json& request) const;

  std::mutex mutex_;
  std::condition_variable asked_;  // one more request, or the end
  bool is_over_ = false;
  std::vector<Json> requests_;
  Loopback server_{[this](const LoopbackRequest& request) { return answer(request); }};
};

}  // namespace hone::test
