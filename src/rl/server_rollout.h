// Rollouts by inference servers (hone serve, vLLM or SGLang): the servers get the weights (server_weights.h), and
// completions are requested over HTTP. The prompts are dealt out to the servers in turn, so that who answers first
// changes nothing.
#pragma once

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "endpoint/client.h"
#include "rl/grpo_run.h"
#include "rl/rollout.h"
#include "rl/server_weights.h"

namespace hone {

// Parses the answer to a request for `count` completions and returns them in the order of their indices: the token ids
// and their log-probabilities, cut after the first stop token. Throws Error if the body is not JSON, and WrongAnswer,
// which names what is missing or wrong, if it does not fit the request.
[[nodiscard]] std::vector<Completion> read_server_answer(const std::string& body, const SamplingParams& sampling,
                                                         std::size_t count, const Tokenizer& tokenizer,
                                                         std::int64_t vocab_size);

class ServerRollout final : public RolloutSource {
 public:
  // All references must outlive the object. Sends no request.
  ServerRollout(const GrpoRun& run, const TensorStore& weights);
  ServerRollout(const ServerRollout&) = delete;
  ServerRollout& operator=(const ServerRollout&) = delete;
  ~ServerRollout() override;

  // Requests all completions: one request for each run of consecutive requests with the same prompt, many requests
  // concurrently. Requests whose completion has begun must have all of it, and are returned as they are. Throws Error
  // if a server refuses, does not answer or gives an invalid answer, and Interrupted on Ctrl+C.
  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests,
                                                 const OnFinished& on_finished) override;
  // The requests ahead run on, with the weights that the servers have, until finish_ahead().
  [[nodiscard]] Generated generate_ahead(std::span<const Request> requests, std::span<const Request> ahead,
                                         const OnFinished& on_finished) override;
  [[nodiscard]] std::vector<Completion> finish_ahead() override;
  void weights_changed() override { weights_sent_ = false; }
  // The first rank sends the weights, of which it gets the others' parts if a tensor group divides them, while the
  // others wait.
  void update_weights() override;

 private:
  // Returns the server of a prompt of this rank; those of different prompts begin with different ones.
  [[nodiscard]] const std::string& server_of(std::size_t prompt) const {
    return servers_[(prompt + static_cast<std::size_t>(run_.job.data_rank())) % servers_.size()];
  }
  [[nodiscard]] std::vector<Completion> draw(std::span<const Request> requests, const OnFinished& on_finished);
  // Returns a server's completions of requests that all have the same prompt.
  [[nodiscard]] std::vector<Completion> ask(const std::string& server, std::span<const Request> group) const;

  const GrpoRun& run_;
  std::vector<std::string> servers_;
  std::atomic<bool> cancelled_ = false;
  EndpointClient client_;
  const TensorStore& weights_;  // what this rank has of them
  ServerWeights sender_;
  bool weights_sent_ = false;
  std::future<std::vector<Completion>> ahead_;  // last: its thread uses the others
};

}  // namespace hone
