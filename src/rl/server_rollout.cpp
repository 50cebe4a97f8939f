#include "rl/server_rollout.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "core/files.h"
#include "core/json_value.h"
#include "model/adapter_files.h"
#include "model/lora.h"
#include "model/weights.h"
#include "system/process.h"
#include "text/detokenizer.h"
#include "train/trainer.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostAtOnce = 64;  // concurrent requests

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

EndpointOptions endpoint_options(const GrpoOptions& options, const std::atomic<bool>& cancelled) {
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

// Writes the base model with the adapter merged into its weights. The adapter is first saved next to the folder,
// because an adapter is merged when its folder is loaded.
void write_merged(const fs::path& folder, const LoraModel& model, const TensorStore& weights,
                  const Json& generation_config) {
  const fs::path adapter = folder.string() + ".adapter";
  remove_path(adapter);
  save_adapter(adapter, model, weights, nullptr);
  const DType dtype = model_dtype(model, weights);
  save_model(folder, model.base(), load_weights(model.base(), ModelDirectory(adapter), dtype, cpu_device()),
             &generation_config);
  remove_path(adapter);
}

// Returns a member of an object. Throws WrongAnswer(what) if it is missing or null.
const Json& member(const Json& object, const char* key, const char* what) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || found->is_null()) throw WrongAnswer(what);
  return *found;
}

// Returns the token ids of a choice: token_ids, or response_token_ids as SGLang names them.
const Json& token_ids_of(const Json& choice) {
  const char* other = "response_token_ids";
  return member(
      choice, choice.is_object() && choice.contains(other) ? other : "token_ids",
      "a choice has no token_ids although return_token_ids is set: the server is too old, or of another kind");
}

Completion read_choice(const Json& choice, const SamplingParams& sampling, const Tokenizer& tokenizer,
                       std::int64_t vocab_size) {
  const Json& ids = token_ids_of(choice);
  const char* const no_logps = "a choice has no logprobs.token_logprobs although logprobs is set";
  const Json& logps = member(member(choice, "logprobs", no_logps), "token_logprobs", no_logps);
  if (!ids.is_array() || !logps.is_array() || ids.size() != logps.size() || ids.empty()) {
    throw WrongAnswer(text_of("a choice has ", ids.size(), " token_ids and ", logps.size(), " token_logprobs"));
  }
  if (static_cast<std::int64_t>(ids.size()) > sampling.max_tokens) {
    throw WrongAnswer(
        text_of("a choice has ", ids.size(), " tokens, but max_tokens ", sampling.max_tokens, " was requested"));
  }
  Completion completion;
  completion.finish_reason = FinishReason::kLength;
  Detokenizer detokenizer(tokenizer, true);
  for (std::size_t i = 0; i < ids.size() && completion.finish_reason == FinishReason::kLength; ++i) {
    if (!ids[i].is_number_integer() || ids[i].get<std::int64_t>() < 0 || ids[i].get<std::int64_t>() >= vocab_size) {
      throw WrongAnswer(text_of("token id ", ids[i].dump(), " is outside the vocabulary of ", vocab_size));
    }
    if (!logps[i].is_number() || !std::isfinite(logps[i].get<double>())) {
      throw WrongAnswer(text_of("a log-probability is ", logps[i].dump(), ", expected a number"));
    }
    const auto id = ids[i].get<TokenId>();
    completion.tokens.push_back(id);
    completion.logps.push_back(logps[i].get<float>());
    if (std::ranges::find(sampling.stop_token_ids, id) != sampling.stop_token_ids.end()) {
      completion.finish_reason = FinishReason::kStop;
    } else {
      completion.text += detokenizer.add(id);
    }
  }
  completion.text += detokenizer.flush();
  return completion;
}

// The whole seed of each completion, so that hone serve draws the tokens that this process would draw.
void add_seeds(std::span<const Request> group, Json& body) {
  body.erase("seed");
  body["ignore_eos"] = true;  // only the stop tokens of the request end a completion, as in this process
  body["logprobs"] = 0;
  for (const Request& request : group) body["seeds"].push_back(request.sampling.seed);
}

Json body_of(const Request& request, std::size_t count) {
  const SamplingParams& sampling = request.sampling;
  // Every parameter is sent, because the server has its own defaults. Some servers read seeds as signed 32-bit numbers.
  return {{"prompt", request.prompt},
          {"n", count},
          {"seed", sampling.seed >> 33},
          {"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k > 0 ? sampling.top_k : -1},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"max_tokens", sampling.max_tokens},
          {"stop_token_ids", sampling.stop_token_ids},
          {"logprobs", 1},
          {"return_token_ids", true}};
}

// Calls ask(i) for all i below `count`, at most kMostAtOnce concurrently. The first exception cancels the others.
void for_all(std::size_t count, std::atomic<bool>& cancelled, const std::function<void(std::size_t)>& ask) {
  std::atomic<std::size_t> next = 0;
  run_requests(std::min(count, kMostAtOnce), cancelled, [&] {
    const std::size_t i = next++;
    if (i < count) ask(i);
    return i < count;
  });
}

}  // namespace

std::string rollout_server_url(const GrpoOptions& options) {
  if (!options.vllm_server_url.empty()) return server_url(options.vllm_server_url, "vllm_server_url");
  return server_url(text_of("http://", options.vllm_server_host, ":", options.vllm_server_port), "vllm_server_host");
}

fs::path rollout_weights_dir(const GrpoOptions& options) {
  const fs::path folder = options.rollout_weights_dir.empty() ? fs::path(options.output_dir) / "rollout_weights"
                                                              : fs::path(options.rollout_weights_dir);
  return fs::absolute(folder).lexically_normal();
}

std::vector<Completion> read_server_answer(const std::string& body, const SamplingParams& sampling, std::size_t count,
                                           const Tokenizer& tokenizer, std::int64_t vocab_size) {
  const Json json = parse_json(body, "the answer");
  const Json& choices = member(json, "choices", "the answer has no choices");
  if (!choices.is_array() || choices.size() != count) {
    throw WrongAnswer(text_of("the answer has ", choices.size(), " choices, but ", count, " were requested"));
  }
  std::vector<Completion> completions(count);
  std::vector<bool> is_there(count, false);
  for (const Json& choice : choices) {
    const Json& index = member(choice, "index", "a choice has no index");
    const auto at = index.is_number_integer() ? index.get<std::int64_t>() : -1;
    if (at < 0 || at >= static_cast<std::int64_t>(count) || is_there[static_cast<std::size_t>(at)]) {
      throw WrongAnswer(
          text_of("the index ", index.dump(), " of a choice is repeated or not below the ", count, " requested"));
    }
    is_there[static_cast<std::size_t>(at)] = true;
    completions[static_cast<std::size_t>(at)] = read_choice(choice, sampling, tokenizer, vocab_size);
  }
  return completions;
}

ServerRollout::ServerRollout(const GrpoOptions& options, const Model& model, const TensorStore& weights,
                             const Tokenizer& tokenizer, std::string generation_config)
    : options_(options),
      model_(model),
      weights_(weights),
      tokenizer_(tokenizer),
      generation_config_(std::move(generation_config)),
      server_(rollout_server_url(options)),
      client_(endpoint_options(options, cancelled_)) {}

void ServerRollout::write_weights(const fs::path& folder) const {
  const fs::path beside = folder.string() + ".partial";
  remove_path(beside);
  hone::create_directories(beside);
  const Json generation_config = parse_json(generation_config_, "generation_config.json");
  if (const LoraModel* lora = model_.adapter()) {
    write_merged(beside, *lora, weights_, generation_config);
  } else {
    save_model(beside, model_, weights_, &generation_config);
  }
  tokenizer_.save(beside);
  remove_path(folder);
  publish_directory(beside, folder);
}

void ServerRollout::send_weights() {
  const fs::path folder = rollout_weights_dir(options_);
  write_weights(folder);
  for (const WeightCall& call : api_of(options_.rollout_server).calls) {
    const std::string url = server_ + std::string(call.path);
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
  weights_sent_ = true;
}

std::vector<Completion> ServerRollout::ask(std::span<const Request> group) const {
  const Request& request = group.front();
  const std::size_t count = group.size();
  std::vector<Completion> completions;
  Json body = body_of(request, count);
  if (options_.rollout_server == RolloutServer::kHone) add_seeds(group, body);
  const std::string url = server_ + "/v1/completions";
  const std::string refusal = client_.post(url, body.dump(), "completion", [&](const std::string& answer) {
    completions = read_server_answer(answer, request.sampling, count, tokenizer_, model_.shape().vocab_size);
  });
  if (!refusal.empty()) throw Error(url, refusal);
  return completions;
}

std::vector<Completion> ServerRollout::generate(std::span<const Request> requests, const OnFinished& on_finished) {
  std::vector<std::size_t> firsts;  // first request of each group with the same prompt
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || requests[i].prompt != requests[i - 1].prompt) firsts.push_back(i);
  }
  std::vector<Completion> completions(requests.size());
  if (!weights_sent_) send_weights();
  for_all(firsts.size(), cancelled_, [&](std::size_t group) {
    const std::size_t first = firsts[group];
    const std::size_t end = group + 1 < firsts.size() ? firsts[group + 1] : requests.size();
    std::ranges::move(ask(requests.subspan(first, end - first)),
                      completions.begin() + static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = first; i < end; ++i) on_finished(i, completions[i]);
  });
  return completions;
}

}  // namespace hone
