// A server on loopback that completes with hone's own engine, on weights that are sent to it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/loopback.h"

namespace hone::test {

class ModelEndpoint {
 public:
  ModelEndpoint();
  ~ModelEndpoint();
  ModelEndpoint(const ModelEndpoint&) = delete;
  ModelEndpoint& operator=(const ModelEndpoint&) = delete;

  [[nodiscard]] std::string url() const { return server_.url(); }

  // What is to happen; set before requests.
  bool is_sglang = false;                    // else vLLM
  bool keeps_first_weights = false;          // what is sent later is acknowledged and not read
  std::atomic<int> failures = 0;             // answers 503 so many times
  std::atomic<int> dies_after = -1;          // answers 500 to completions from then on; -1: never
  std::function<void(Json& answer)> change;  // of an answer to a request for completions
  std::string body;                          // sent in place of such an answer
  bool is_silent = false;                    // takes requests and answers none

  [[nodiscard]] std::vector<std::string> paths();  // of requests, in order
  [[nodiscard]] std::vector<Json> requests();      // for completions
  [[nodiscard]] int connections() const { return server_.connections(); }

 private:
  struct Served;

  [[nodiscard]] std::string answer(const LoopbackRequest& asked);
  [[nodiscard]] std::string load(const std::string& folder);
  [[nodiscard]] Json complete(const Json& request);

  std::mutex mutex_;
  std::atomic<bool> is_over_ = false;
  std::vector<std::string> paths_;
  std::vector<Json> requests_;
  std::unique_ptr<Served> served_;
  Loopback server_{[this](const LoopbackRequest& request) { return answer(request); }};
};

}  // namespace hone::test
