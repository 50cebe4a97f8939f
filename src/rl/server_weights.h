// Sends the weights of the policy to the servers that generate: through a folder that they load, or over NCCL.
// Sources: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
// https://docs.sglang.ai/advanced_features/sglang_for_rl.html
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "endpoint/client.h"
#include "rl/grpo_run.h"
#include "rl/weight_sender.h"

namespace hone {

// Returns the URLs of the servers that the options name, without /v1. Throws Error if one is not an http(s) URL, is
// named twice, or if they are too many.
[[nodiscard]] std::vector<std::string> rollout_server_urls(const GrpoOptions& options);
// Returns the absolute path of the folder in which weights are written for the servers.
[[nodiscard]] std::filesystem::path rollout_weights_dir(const GrpoOptions& options);
// Returns the limits of requests to the servers, and what messages advise. `cancelled` must outlive the client.
[[nodiscard]] EndpointOptions rollout_endpoint(const GrpoOptions& options, const std::atomic<bool>& cancelled);

class ServerWeights {
 public:
  // run: must outlive the object. device: that of the policy. Sends no request.
  ServerWeights(const GrpoRun& run, Device& device);

  // Replaces the weights of all servers by `weights`, the whole ones of the policy; those of an adapter are merged. The
  // first call asks the servers whether they take weights over NCCL, if the options leave the choice. Throws Error if a
  // server refuses, fails or does not answer, and Interrupted on Ctrl+C.
  void send(const TensorStore& weights);

 private:
  [[nodiscard]] bool chooses_nccl();
  // Asks a server whether it takes weights over NCCL, and notes the type of its weights. Returns "", or why it does
  // not.
  [[nodiscard]] std::string obstacle_at(const std::string& server);
  // Connects to all servers. Returns "", or why that is not possible.
  [[nodiscard]] std::string obstacle_of_connection();
  void send_over_nccl(const TensorStore& weights);
  void send_by_folder(const TensorStore& weights);
  void write_folder(const std::filesystem::path& folder, const TensorStore& weights) const;
  void announce(const std::string& server, const std::filesystem::path& folder) const;

  const GrpoRun& run_;
  Device& device_;
  std::vector<std::string> servers_;
  std::atomic<bool> cancelled_ = false;
  EndpointClient client_;
  bool narrows_ = true;                   // all servers have bf16 weights
  std::optional<bool> over_nccl_;         // unset: not chosen yet
  std::unique_ptr<WeightSender> sender_;  // set if over_nccl_
};

}  // namespace hone
