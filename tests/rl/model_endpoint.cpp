#include "rl/model_endpoint.h"

#include <optional>

#include "core/interrupt.h"
#include "core/json_value.h"
#include "engine/engine.h"
#include "model/loaded_model.h"
#include "support/device.h"

namespace hone::test {

struct ModelEndpoint::Served {
  explicit Served(const std::string& folder)
      : loaded(load_model(folder, std::nullopt, test_device())),
        engine(*loaded.model, loaded.tokenizer, loaded.weights, std::make_shared<Arena>(test_device()),
               {.max_model_len = 64, .max_num_seqs = 4, .adjust_logits = true}) {}

  LoadedModel loaded;
  Engine engine;
};

ModelEndpoint::ModelEndpoint() = default;
ModelEndpoint::~ModelEndpoint() {
  is_over_ = true;
  is_over_.notify_all();
}

std::vector<std::string> ModelEndpoint::paths() {
  const std::scoped_lock lock(mutex_);
  return paths_;
}

std::vector<Json> ModelEndpoint::requests() {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

std::string ModelEndpoint::load(const std::string& folder) {
  if (!served_ || !keeps_first_weights) served_ = std::make_unique<Served>(folder);
  return http_answer("200 OK", Json{{"success", true}, {"message", "Succeeded"}}.dump());
}

Json ModelEndpoint::complete(const Json& request) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < request.at("n").get<std::uint64_t>(); ++i) {
    SamplingParams sampling;
    sampling.temperature = request.at("temperature").get<double>();
    sampling.top_p = request.at("top_p").get<double>();
    sampling.min_p = request.at("min_p").get<double>();
    sampling.top_k = std::max<std::int64_t>(request.at("top_k").get<std::int64_t>(), 0);
    sampling.repetition_penalty = request.at("repetition_penalty").get<double>();
    sampling.max_tokens = request.at("max_tokens").get<std::int64_t>();
    sampling.seed = request.at("seed").get<std::uint64_t>() + i;
    sampling.stop_token_ids = request.at("stop_token_ids").get<std::vector<TokenId>>();
    requests.push_back({request.at("prompt").get<std::vector<TokenId>>(), std::move(sampling)});
  }
  Json choices = Json::array();
  const std::vector<Completion> completions = served_->engine.generate(requests);
  for (std::size_t i = completions.size(); i-- > 0;) {
    const Completion& completion = completions[i];
    choices.push_back({{"index", i},
                       {"text", completion.text},
                       {"token_ids", completion.tokens},
                       {"logprobs", {{"token_logprobs", completion.logps}}},
                       {"finish_reason", std::string(name_of(completion.finish_reason))}});
  }
  return {{"object", "text_completion"}, {"choices", choices}};
}

std::string ModelEndpoint::answer(const LoopbackRequest& asked) {
  if (is_silent) {
    is_over_.wait(false);
    return {};
  }
  const std::scoped_lock lock(mutex_);
  const std::string path = asked.line.substr(asked.line.find(' ') + 1);
  paths_.push_back(path);
  if (failures > 0) {
    --failures;
    return http_answer("503 Service Unavailable", "starting");
  }
  const Json request = Json::parse(asked.body);
  if (is_sglang && path == "/update_weights_from_disk") return load(request.at("model_path").get<std::string>());
  if (!is_sglang && path == "/collective_rpc" && request.at("method") == "reload_weights") {
    return load(request.at("kwargs").at("weights_path").get<std::string>());
  }
  if (!is_sglang && path == "/reset_prefix_cache") return http_answer("200 OK", "");
  if (path != "/v1/completions") return http_answer("404 Not Found", R"({"detail":"Not Found"})");
  requests_.push_back(request);
  if (dies_after >= 0 && static_cast<int>(requests_.size()) > dies_after) {
    return http_answer("500 Internal Server Error", R"({"error":{"message":"out of memory"}})");
  }
  if (!body.empty()) return http_answer("200 OK", body);
  try {
    Json answer = complete(request);
    if (change) change(answer);
    return http_answer("200 OK", answer.dump());
  } catch (const Interrupted&) {  // Ctrl+C in a test interrupts the server too: both are one process
    return http_answer("503 Service Unavailable", "stopping");
  }
}

}  // namespace hone::test
