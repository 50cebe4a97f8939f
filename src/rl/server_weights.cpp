#include "rl/server_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "model/adapter_files.h"
#include "model/lora.h"
#include "model/sent_tensors.h"
#include "model/weights.h"
#include "rendezvous/store_server.h"
#include "system/process.h"
#include "train/trainer.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Request that makes a server load weights from a folder.
struct WeightCall {
  std::string_view path;
  Json (*body)(const std::string& folder);
};
struct ServerApi {
  std::vector<WeightCall> calls;
  std::string_view help;  // advice if the server does not have the path of a call
};

const ServerApi& api_of(RolloutServer server) {
  static const std::array<ServerApi, 3> apis{
      ServerApi{.calls = {{"/collective_rpc",
                           [](const std::string& folder) {
                             return Json{{"method", "reload_weights"}, {"kwargs", {{"weights_path", folder}}}};
                           }},
                          {"/reset_prefix_cache", [](const std::string&) { return Json::object(); }}},
                .help = "vllm serve needs VLLM_SERVER_DEV_MODE=1 in its environment to load weights, trl vllm-serve "
                        "loads them only over NCCL; for SGLang set rollout_server: sglang"},
      ServerApi{.calls = {{"/update_weights_from_disk",
                           [](const std::string& folder) { return Json{{"model_path", folder}}; }}},
                .help = "for vLLM set rollout_server: vllm"},
      ServerApi{
          .calls = {{"/update_weights",
                     [](const std::string& folder) { return Json{{"update_info", {{"weights_path", folder}}}}; }}},
          .help = "start hone serve with --allow_weight_updates; for vLLM set rollout_server: vllm"}};
  return apis.at(static_cast<std::size_t>(server));
}

// Calls use(folder) with a folder of the adapter, which is removed afterwards: an adapter is merged when its folder is
// loaded.
template <class Use>
void with_adapter_folder(const fs::path& folder, const LoraModel& model, const TensorStore& weights, const Use& use) {
  remove_path(folder);
  hone::create_directories(folder.parent_path());
  save_adapter(folder, model, weights, nullptr);
  use(ModelDirectory(folder));
  remove_path(folder);
}

}  // namespace

std::vector<std::string> rollout_server_urls(const GrpoOptions& options) {
  if (options.vllm_server_url.empty())
    return {
        server_url(text_of("http://", options.vllm_server_host, ":", options.vllm_server_port), "vllm_server_host")};
  std::vector<std::string> urls;
  for (const std::string& given : options.vllm_server_url) {
    std::string url = server_url(given, "vllm_server_url");
    if (std::ranges::find(urls, url) != urls.end())
      throw Error("vllm_server_url", text_of(url, " is named twice"), "one URL for each server");
    urls.push_back(std::move(url));
  }
  if (urls.size() > kMostStoreClients)
    throw Error("vllm_server_url", text_of("names ", urls.size(), " servers"), text_of("at most ", kMostStoreClients));
  return urls;
}

fs::path rollout_weights_dir(const GrpoOptions& options) {
  const fs::path folder = options.rollout_weights_dir.empty() ? fs::path(options.output_dir) / "rollout_weights"
                                                              : fs::path(options.rollout_weights_dir);
  return fs::absolute(folder).lexically_normal();
}

EndpointOptions rollout_endpoint(const GrpoOptions& options, const std::atomic<bool>& cancelled) {
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(std::ceil(options.vllm_server_timeout * 1000)));
  return {.token = environment_variable(options.rollout_key_variable.c_str()),
          .token_help = "the server's key belongs in the environment's " + options.rollout_key_variable,
          .not_found_help = std::string(api_of(options.rollout_server).help),
          .retries_exhausted_help =
              "vllm_server_timeout limits the time; the same command continues from the last "
              "checkpoint",
          .timeout = timeout,
          .retries = 1,
          .patience = timeout,
          .cancelled = &cancelled};
}

ServerWeights::ServerWeights(const GrpoRun& run, Device& device)
    : run_(run),
      device_(device),
      servers_(rollout_server_urls(run.options)),
      client_(rollout_endpoint(run.options, cancelled_)) {}

void ServerWeights::send(const TensorStore& weights) {
  if (!over_nccl_) over_nccl_ = chooses_nccl();
  if (*over_nccl_) {
    send_over_nccl(weights);
  } else {
    send_by_folder(weights);
  }
}

bool ServerWeights::chooses_nccl() {
  const RolloutWeights choice = run_.options.rollout_weights;
  if (choice == RolloutWeights::kFolder || run_.options.rollout_server != RolloutServer::kHone) return false;
  std::string obstacle = run_.broadcasts ? "" : "the trainer is not on a GPU";
  for (const std::string& server : servers_) {
    if (obstacle.empty()) obstacle = obstacle_at(server);
  }
  if (obstacle.empty()) {
    sender_ = std::make_unique<WeightSender>(*run_.broadcasts, servers_, rollout_endpoint(run_.options, cancelled_));
    obstacle = obstacle_of_connection();
  }
  if (obstacle.empty()) {
    log_info(text_of("weights go to ", servers_.size() == 1 ? "the server" : text_of(servers_.size(), " servers"),
                     " over NCCL"));
    return true;
  }
  if (choice == RolloutWeights::kNccl)
    throw Error("rollout_weights", text_of("is nccl, but ", obstacle), "rollout_weights: folder");
  // A server that cannot be reached is found again by whatever is sent next.
  const std::string line = text_of("weights go by a folder: ", obstacle);
  if (sender_ != nullptr) {
    log_warning(line);
  } else {
    log_info(line);
  }
  sender_.reset();
  return false;
}

std::string ServerWeights::obstacle_of_connection() {
  try {
    sender_->connect();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string ServerWeights::obstacle_at(const std::string& server) {
  const std::string url = server + "/server_info";
  Json config;
  const std::string refusal = client_.get(url, "description of a server", [&](const std::string& body) {
    config = parse_json(body, "the answer").at("vllm_config");
  });
  if (!refusal.empty()) throw Error(url, refusal);
  narrows_ = narrows_ && config.at("model_config").value("dtype", "") == "torch.bfloat16";
  if (!config.value("weight_transfer_config", Json()).is_null()) return "";
  return text_of(server, " takes weights from folders only (NCCL needs hone serve --allow_weight_updates on GPUs)");
}

void ServerWeights::send_over_nccl(const TensorStore& weights) {
  const LoraModel* lora = run_.model->whole().adapter();
  if (lora == nullptr) {
    SentTensors tensors(run_.model->whole(), weights, device_, narrows_);
    return sender_->send(tensors);
  }
  const fs::path folder = rollout_weights_dir(run_.options).string() + ".adapter";
  with_adapter_folder(folder, *lora, weights, [&](const ModelDirectory& adapter) {
    const TensorStore merged = load_weights(lora->base(), adapter, model_dtype(*lora, weights), cpu_device());
    SentTensors tensors(lora->base(), merged, device_, narrows_);
    sender_->send(tensors);
  });
}

void ServerWeights::write_folder(const fs::path& folder, const TensorStore& weights) const {
  const fs::path beside = folder.string() + ".partial";
  remove_path(beside);
  hone::create_directories(beside);
  const Json generation_config = parse_json(run_.generation_config, "generation_config.json");
  if (const LoraModel* lora = run_.model->whole().adapter()) {
    with_adapter_folder(beside.string() + ".adapter", *lora, weights, [&](const ModelDirectory& adapter) {
      const DType dtype = model_dtype(*lora, weights);
      save_model(beside, lora->base(), load_weights(lora->base(), adapter, dtype, cpu_device()), &generation_config);
    });
  } else {
    save_model(beside, run_.model->whole(), weights, &generation_config);
  }
  run_.tokenizer.save(beside);
  remove_path(folder);
  publish_directory(beside, folder);
}

void ServerWeights::send_by_folder(const TensorStore& weights) {
  const fs::path folder = rollout_weights_dir(run_.options);
  write_folder(folder, weights);
  for (const std::string& server : servers_) announce(server, folder);
}

void ServerWeights::announce(const std::string& server, const fs::path& folder) const {
  for (const WeightCall& call : api_of(run_.options.rollout_server).calls) {
    const std::string url = server + std::string(call.path);
    const std::string refusal =
        client_.post(url, call.body(folder.string()).dump(), "acknowledgement", [](const std::string& body) {
          if (body.find('{') == std::string::npos) return;  // vLLM answers with an empty body
          const Json answer = parse_json(body, "the answer");
          if (answer.is_object() && answer.value("success", Json(true)) == false) {
            throw WrongAnswer(text_of("the server refused the weights: ", answer.value("message", "no reason given")));
          }
        });
    if (!refusal.empty()) throw Error(url, refusal);
  }
}

}  // namespace hone
