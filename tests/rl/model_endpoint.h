// A loopback server with vLLM's or SGLang's API that runs hone's engine on the weights that it is sent.
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

  // Behaviour; set before the first request.
  bool is_sglang = false;                    // SGLang's API; false: vLLM's
  bool keeps_first_weights = false;          // acknowledges later weights without loading them
  std::atomic<int> failures = 0;             // requests that are still answered with 503
  std::atomic<int> dies_after = -1;          // completion requests after which every answer is 500; -1: never
  std::function<void(Json& answer)> change;  // edits the answer to a completion request
  std::string body;                          // replaces the answer to completion requests if not empty
  bool is_silent = false;                    // accepts requests and never answers

  [[nodiscard]] std::vector<std::string> paths();  // paths of all requests, in order
  [[nodiscard]] std::vector<Json> requests();      // bodies of the completion requests
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
