// Rollouts by an inference server (vLLM or SGLang): weights are written to a folder that the server reloads, and
// completions are requested over HTTP.
// Sources: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
// https://docs.sglang.ai/advanced_features/sglang_for_rl.html
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "endpoint/client.h"
#include "rl/rollout.h"

namespace hone {

// Returns the URL of the server that the options name, without /v1. Throws Error if it is not an http(s) URL.
[[nodiscard]] std::string rollout_server_url(const GrpoOptions& options);
// Returns the absolute path of the folder in which weights are written for the server.
[[nodiscard]] std::filesystem::path rollout_weights_dir(const GrpoOptions& options);

// Parses the answer to a request for `count` completions and returns them in the order of their indices: the token ids
// and their log-probabilities, cut after the first stop token. Throws Error if the body is not JSON, and WrongAnswer,
// which names what is missing or wrong, if it does not fit the request.
[[nodiscard]] std::vector<Completion> read_server_answer(const std::string& body, const SamplingParams& sampling,
                                                         std::size_t count, const Tokenizer& tokenizer,
                                                         std::int64_t vocab_size);

class ServerRollout final : public RolloutSource {
 public:
  // All references must outlive the object. Sends no request.
  ServerRollout(const GrpoOptions& options, const Model& model, const TensorStore& weights, const Tokenizer& tokenizer,
                std::string generation_config);

  // Sends the weights if they have changed, then requests all completions: one request for each run of consecutive
  // requests with the same prompt, many requests concurrently. Throws Error if the server refuses, does not answer or
  // gives an invalid answer, and Interrupted on Ctrl+C.
  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests,
                                                 const OnFinished& on_finished) override;
  void weights_changed() override { weights_sent_ = false; }

 private:
  void send_weights();
  void write_weights(const std::filesystem::path& folder) const;
  [[nodiscard]] std::vector<Completion> ask(std::span<const Request> group) const;  // all have the same prompt

  const GrpoOptions& options_;
  const Model& model_;
  const TensorStore& weights_;
  const Tokenizer& tokenizer_;
  std::string generation_config_;  // JSON
  std::string server_;
  std::atomic<bool> cancelled_ = false;
  EndpointClient client_;
  bool weights_sent_ = false;
};

}  // namespace hone
