// An OpenAI-compatible server on loopback, with the faults that a test asks for.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"

namespace hone::test {

class SmallEndpoint {
 public:
  SmallEndpoint();
  SmallEndpoint(const SmallEndpoint&) = delete;
  SmallEndpoint& operator=(const SmallEndpoint&) = delete;
  ~SmallEndpoint();

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // What is to happen; set before requests.
  std::string needed_key;             // 401 without it
  std::string retry_after;            // with an answer 429
  std::atomic<int> busy = 0;          // answers 429 so many times
  std::atomic<int> cut = 0;           // closes the connection in the middle of so many answers
  std::atomic<int> nonsense = 0;      // answers 200 with a page so many times
  std::atomic<int> slow = 0;          // answers so many times after two seconds only
  std::atomic<int> stops_after = -1;  // answers 500 from then on; -1: never
  int pause_milliseconds = 0;         // before each answer
  std::string message;                // JSON, sent in place of {"content": "MODEL SEED: PROMPT"}
  bool counts_tokens = true;

  [[nodiscard]] std::vector<Json> requests();  // bodies, in order
  [[nodiscard]] int most_at_once() const { return most_; }

 private:
  void serve();
  void answer(int connection);
  [[nodiscard]] std::string completion_of(const Json& request) const;

  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stops_ = false;
  std::atomic<int> open_ = 0;
  std::atomic<int> most_ = 0;
  std::mutex mutex_;
  std::vector<Json> requests_;
  std::vector<std::jthread> answering_;
  std::thread thread_;
};

}  // namespace hone::test
