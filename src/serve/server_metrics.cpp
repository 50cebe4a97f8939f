#include "serve/server_metrics.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

// Bounds 1, 2, 5, 10, 20, 50 ... up to `most`.
std::vector<double> length_bounds(std::int64_t most) {
  std::vector<double> bounds;
  for (double power = 1;; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (power * factor > static_cast<double>(most)) return bounds;
      bounds.push_back(power * factor);
    }
  }
}

// The text of a label's value.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char letter : value) {
    if (letter == '\\' || letter == '"') text += '\\';
    text += letter == '\n' ? ' ' : letter;
  }
  return text;
}

// Bounds of the times of requests, in seconds, which are vLLM's.
std::vector<double> request_bounds() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}

void print_metric(std::string& text, std::string_view name, std::string_view type, std::string_view help,
                  std::string_view labels, auto value) {
  text += text_of("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n", name, "{", labels, "} ", value, "\n");
}

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += value;
}

void Histogram::print(std::string& text, std::string_view name, std::string_view labels) const {
  text += text_of("# TYPE ", name, " histogram\n");
  std::int64_t count = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i)
    text += text_of(name, "_bucket{", labels, ",le=\"", bounds_[i], "\"} ", count += counts_[i], "\n");
  count += counts_.back();
  text += text_of(name, "_bucket{", labels, ",le=\"+Inf\"} ", count, "\n", name, "_sum{", labels, "} ", sum_, "\n",
                  name, "_count{", labels, "} ", count, "\n");
}

ServerMetrics::ServerMetrics(std::string_view model_name, std::int64_t max_model_len, int engine)
    : labels_(text_of("model_name=\"", escaped(model_name), "\",engine=\"", engine, "\"")),
      first_token_({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}),
      inter_token_({0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}),
      latency_(request_bounds()),
      queue_(request_bounds()),
      prefill_(request_bounds()),
      decode_(request_bounds()),
      inference_(request_bounds()),
      prompt_lengths_(length_bounds(max_model_len)),
      generation_lengths_(length_bounds(max_model_len)),
      max_tokens_(length_bounds(max_model_len)) {}

void ServerMetrics::add_prompt(std::int64_t tokens, std::int64_t max_tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
  prompt_lengths_.add(static_cast<double>(tokens));
  max_tokens_.add(static_cast<double>(max_tokens));
}

void ServerMetrics::add_embeddings(std::int64_t tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
  ++ended_.at(static_cast<std::size_t>(FinishReason::kStop));
}

void ServerMetrics::add_end(FinishReason reason) {
  const std::lock_guard lock(mutex_);
  ++ended_.at(static_cast<std::size_t>(reason));
}

void ServerMetrics::set_engine(const Engine::Statistics& engine) {
  const std::lock_guard lock(mutex_);
  engine_ = engine;
}

void ServerMetrics::add_step(const StepFigures& figures) {
  const std::lock_guard lock(mutex_);
  for (const double seconds : figures.first_token_seconds) first_token_.add(seconds);
  for (const double seconds : figures.token_seconds) inter_token_.add(seconds);
  for (const StepFigures::End& end : figures.ends) {
    ++ended_.at(static_cast<std::size_t>(end.reason));
    latency_.add(end.seconds);
    queue_.add(end.queue);
    prefill_.add(end.prefill);
    decode_.add(end.decode);
    inference_.add(end.prefill + end.decode);
    generation_lengths_.add(static_cast<double>(end.tokens));
  }
}

std::string ServerMetrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    print_metric(text, name, "gauge", help, labels_, value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, std::int64_t value) {
    print_metric(text, name, "counter", help, labels_, value);
  };
  gauge("vllm:num_requests_running", "Requests in the batches of the engine.", engine_.running);
  gauge("vllm:num_requests_waiting", "Requests that wait for the engine.", engine_.waiting);
  gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 1 is all of it.", engine_.kv_usage);
  counter("vllm:num_preemptions_total", "Preempted requests.", engine_.preemptions);
  counter("vllm:spec_decode_num_draft_tokens_total", "Proposed tokens that were checked.", engine_.drafted_tokens);
  counter("vllm:spec_decode_num_accepted_tokens_total", "Proposed tokens that were drawn.", engine_.accepted_tokens);
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", prompt_tokens_);
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", engine_.prefix_hit_tokens);
  counter("vllm:prompt_tokens_total", "Tokens of prompts.", prompt_tokens_);
  counter("vllm:generation_tokens_total", "Generated tokens.", engine_.generated_tokens);
  text += "# HELP vllm:request_success_total Finished requests.\n# TYPE vllm:request_success_total counter\n";
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort})
    text += text_of("vllm:request_success_total{", labels_, ",finished_reason=\"", name_of(reason), "\"} ",
                    ended_.at(static_cast<std::size_t>(reason)), "\n");
  first_token_.print(text, "vllm:time_to_first_token_seconds", labels_);
  inter_token_.print(text, "vllm:inter_token_latency_seconds", labels_);
  inter_token_.print(text, "vllm:time_per_output_token_seconds", labels_);
  latency_.print(text, "vllm:e2e_request_latency_seconds", labels_);
  queue_.print(text, "vllm:request_queue_time_seconds", labels_);
  prefill_.print(text, "vllm:request_prefill_time_seconds", labels_);
  decode_.print(text, "vllm:request_decode_time_seconds", labels_);
  inference_.print(text, "vllm:request_inference_time_seconds", labels_);
  prompt_lengths_.print(text, "vllm:request_prompt_tokens", labels_);
  generation_lengths_.print(text, "vllm:request_generation_tokens", labels_);
  max_tokens_.print(text, "vllm:request_params_max_tokens", labels_);
  return text;
}

}  // namespace hone
