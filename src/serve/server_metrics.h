// Counts what a server does, under the names of vLLM's metrics, and prints it as Prometheus reads it.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace hone {

class Histogram {
 public:
  // `bounds`: upper bounds of the buckets, ascending; one more without a bound follows.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  // Appends the lines of the metric `name` with these labels.
  void print(std::string& text, std::string_view name, std::string_view labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // [bounds + 1]
  double sum_ = 0;
};

// The figures of one step of the engine.
struct StepFigures {
  struct End {
    double seconds = 0;  // since the request arrived, of which it was
    double queue = 0;    // in the queue,
    double prefill = 0;  // computing until its first token
    double decode = 0;   // and from there to its last one
    std::int64_t tokens = 0;
    FinishReason reason = FinishReason::kNone;
  };
  std::vector<double> first_token_seconds;  // since the request arrived
  std::vector<double> token_seconds;        // since the token before
  std::vector<End> ends;
};

// Thread-safe.
class ServerMetrics {
 public:
  // engine: number of the replica, as the label of each sample.
  ServerMetrics(std::string_view model_name, std::int64_t max_model_len, int engine = 0);
  void add_prompt(std::int64_t tokens, std::int64_t max_tokens);
  void add_embeddings(std::int64_t tokens);  // of the inputs of a request
  void add_end(FinishReason reason);         // of a request that was cancelled
  void add_step(const StepFigures& figures);
  void set_engine(const Engine::Statistics& engine);
  [[nodiscard]] std::string text() const;

 private:
  std::string labels_;
  mutable std::mutex mutex_;
  Engine::Statistics engine_;
  std::int64_t prompt_tokens_ = 0;
  std::array<std::int64_t, 4> ended_{};  // [FinishReason]
  Histogram first_token_;
  Histogram inter_token_;
  Histogram latency_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram inference_;
  Histogram prompt_lengths_;
  Histogram generation_lengths_;
  Histogram max_tokens_;
};

}  // namespace hone
