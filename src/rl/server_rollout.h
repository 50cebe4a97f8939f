// Rollouts by a server that others run: weights go there as a folder, completions come back over HTTP.
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

// The server that the options name, without /v1. Throws Error where that is no URL.
[[nodiscard]] std::string rollout_server_url(const GrpoOptions& options);
// Where weights are put for it.
[[nodiscard]] std::filesystem::path rollout_weights_dir(const GrpoOptions& options);

// The completions of one request's answer, in the order of their indices: the token ids and the log-probability of each
// that the server gives, cut behind the first stop token. Throws Error where it is no JSON, WrongAnswer where it is no
// answer to this request: what is missing or wrong is said.
[[nodiscard]] std::vector<Completion> read_server_answer(const std::string& body, const SamplingParams& sampling,
                                                         std::size_t count, const Tokenizer& tokenizer,
                                                         std::int64_t vocab_size);

class ServerRollout final : public RolloutSource {
 public:
  // All must outlive it. Nothing is asked yet.
  ServerRollout(const GrpoOptions& options, const Model& model, const TensorStore& weights, const Tokenizer& tokenizer,
                std::string generation_config);

  // Sends the weights where they have moved, and asks for all completions: one request for neighbours with the same
  // prompt, many requests at a time. Throws Error where the server refuses, does not answer or gives what is
  // no answer, and Interrupted.
  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests) override;
  void weights_moved() override { are_sent_ = false; }

 private:
  void send_weights();
  void write_weights(const std::filesystem::path& folder) const;
  [[nodiscard]] std::vector<Completion> ask(const Request& request, std::size_t count) const;

  const GrpoOptions& options_;
  const Model& model_;
  const TensorStore& weights_;
  const Tokenizer& tokenizer_;
  std::string generation_config_;  // JSON
  std::string server_;
  std::atomic<bool> cancelled_ = false;
  EndpointClient client_;
  bool are_sent_ = false;
};

}  // namespace hone
