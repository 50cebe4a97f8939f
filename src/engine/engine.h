// The generation engine: takes requests and returns sampled tokens. The weights may be trained while no request is
// left, if weights_changed() is called afterwards.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine_options.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "model/model.h"
#include "program/executable.h"
#include "text/tokenizer.h"
#include "workspace/workspace.h"

namespace hone {

class EngineGroup;

// Adds the programs of an engine, and with them its KV cache, to a workspace that has the model's weights. If rollouts
// reuse the memory of training, whose programs must then be added before, the KV cache takes all of it that it can use,
// and `num_blocks` is only the least number of its blocks. Throws Error if an option is invalid (resolved()) or
// max_model_len exceeds the model's positions.
void add_generation(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& options);

// Runs requests with continuous batching. Sampled tokens depend only on the weights, the prompt, the sampling
// parameters and the seed, never on other requests, the chunking of prompts, preemption, the prefix cache or proposed
// tokens.
class Engine {
 public:
  // An engine with its own workspace on `arena`. Weights, tokenizer and model must outlive the engine. group: the ranks
  // that have parts of the model; the first rank's engine gives the others their work, and theirs do what it says
  // (follow()). Throws Error of any rank then. null: this process has the whole model.
  Engine(const Model& model, const Tokenizer& tokenizer, const TensorStore& weights,
         const std::shared_ptr<Arena>& arena, const EngineOptions& options, EngineGroup* group = nullptr);
  // An engine on the programs that add_generation() added to `workspace`, which must be allocated and outlive the
  // engine. `options` must be the same as for add_generation(); the workspace's KV cache determines num_blocks. group:
  // the ranks that have parts of the model, each of which creates such an engine; a follower's does what
  // follow_engine() carries out. null: as above.
  Engine(const Model& model, const Tokenizer& tokenizer, Workspace& workspace, const EngineOptions& options,
         EngineGroup* group = nullptr);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Runs each program twice without tokens: the first run allocates memory and loads kernels, the second one records
  // the launches, and the first requests wait for neither. Where steps may begin before their masks are known, a third
  // run records these launches. No request may be under way.
  void prepare();
  // Launches a program of a follower's engine with the inputs of the first rank (Executable::changes()), or only begins
  // to.
  void follow_begin(std::size_t program, std::string_view changes);
  void follow(std::size_t program, std::string_view changes);
  // Queues a request. If what it has already is a whole completion, completion() has it immediately, and no step gives
  // an update of it. Throws Error if the prompt is empty or a token is outside the vocabulary, if max_model_len leaves
  // no room for a new token (the message states both lengths), if max_tokens is below 1, if logprobs is above
  // EngineOptions::max_logprobs or if the repetition penalty is not above 0.
  RequestId add(Request request);
  // Ends a request with FinishReason::kAbort. Does nothing if the request has finished.
  void cancel(RequestId id);
  // Must be called when the weights have changed, before the next request is added or the next step. The engine forgets
  // all keys and values. Requests under way keep their tokens, compute the keys and values of these again and continue
  // with the new weights; no step may be launched then (settle()).
  void weights_changed();
  // Makes later requests compute the beginnings of their prompts again.
  void forget_prefixes();
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] Device& device() const;

  // The progress that a step made on one request.
  struct Update {
    RequestId id = 0;
    std::string_view text;  // new text, never an incomplete character; valid until the next call
    FinishReason finish_reason = FinishReason::kNone;
  };
  // Waits for one forward pass and returns an update for each request that got a token. If options.launch_ahead, the
  // next pass has been launched by then.
  [[nodiscard]] std::vector<Update> step();
  // Waits for the steps that have been launched, launches none and passes their updates to on_update.
  void settle(const std::function<void(const Update&)>& on_update);
  // Steps until no request is left and passes each update to on_update. Calls `refill` before each step; it may add
  // requests. On Ctrl+C, cancels all requests and throws Interrupted.
  void run(const std::function<void(const Update&)>& on_update, const std::function<void()>& refill = {});
  // Returns what a request has by now, also once it has finished. Valid until the next step() or take(). Throws Defect
  // if the engine has no such request.
  [[nodiscard]] const Completion& completion(RequestId id) const;
  // Returns when the first step of a request was launched; the clock's epoch if none was. Throws as completion() does.
  [[nodiscard]] std::chrono::steady_clock::time_point started(RequestId id) const;
  // Removes a finished request from the engine and returns its result. Throws Defect if it has not finished.
  [[nodiscard]] Completion take(RequestId id);

  // Runs all requests to completion and returns their results in the same order. Calls on_finish with the index and the
  // result of each request when it finishes. Throws Interrupted on Ctrl+C.
  [[nodiscard]] std::vector<Completion> generate(
      std::span<const Request> requests,
      const std::function<void(std::size_t index, const Completion& completion)>& on_finish = {});
  // Likewise. Where `requests` leave room in a step, the requests `ahead` are begun, in their order; they end where
  // they are when the last of `requests` is complete. How far they come depends on all of these requests and on the
  // engine's options only, not on time.
  [[nodiscard]] Generated generate(
      std::span<const Request> requests, std::span<const Request> ahead,
      const std::function<void(std::size_t index, const Completion& completion)>& on_finish);

  struct Statistics {
    std::int64_t steps = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t generated_tokens = 0;
    std::int64_t drafted_tokens = 0;   // proposed and compared with the token that was drawn
    std::int64_t accepted_tokens = 0;  // of these, equal
    std::int64_t preemptions = 0;
    std::int64_t prefix_hit_tokens = 0;  // not computed because the prefix cache had them, preempted requests included
    std::int64_t evicted_blocks = 0;     // blocks of the prefix cache whose memory was needed
    std::int64_t running = 0;            // requests that have blocks of the KV cache
    std::int64_t waiting = 0;            // requests that have none yet
    double kv_usage = 0;                 // share of the KV cache's blocks that requests hold
  };
  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] std::int64_t kv_bytes() const;  // size of the KV cache

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
