// A job of the engine's thread, and the progress that it reports.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "serve/adapter_table.h"

namespace hone {

// The text and the tokens that a completion has gained since the progress before.
struct GenerationProgress {
  std::size_t index = 0;  // of the completion in its job
  std::string text;       // never an incomplete character, nor the beginning of a stop string
  std::vector<TokenId> tokens;
  std::vector<float> logps;                             // [tokens]
  std::vector<std::vector<TokenLogprob>> top_logprobs;  // [tokens], or empty
  // Only in a completion's first progress, with SamplingParams::prompt_logprobs: Completion::prompt_logps and
  // prompt_top_logprobs.
  std::vector<float> prompt_logps = {};
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs = {};
  FinishReason finish_reason = FinishReason::kNone;
};

// Receives the completions of a job. add() and fail() are called by one thread.
class GenerationSink {
 public:
  GenerationSink() = default;
  GenerationSink(const GenerationSink&) = delete;
  GenerationSink& operator=(const GenerationSink&) = delete;
  virtual ~GenerationSink() = default;

  // Returns false if the job is to be cancelled. Called from any thread.
  [[nodiscard]] virtual bool wanted() const = 0;
  virtual void add(GenerationProgress progress) = 0;
  // Ends the job with a problem. Later calls have no effect. Must not throw.
  virtual void fail(int status, std::string_view message) = 0;
};

struct GenerationJob {
  std::vector<Request> requests;  // at least one
  std::shared_ptr<GenerationSink> sink;
  std::shared_ptr<const ServedAdapter> adapter = nullptr;  // null: the base model
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
};

}  // namespace hone
