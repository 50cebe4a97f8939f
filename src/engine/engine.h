// Generation: requests in, tokens out, on weights that others may be training.
#pragma once

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

// Adds the programs of an engine to a workspace that has the model's weights, and with them its pages. Throws Error
// where an option makes no sense.
void add_generation(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& options);

// Tokens depend on the weights, the prompt, the sampling parameters and the seed alone: not on what else runs, on how
// prompts are cut or on preemption.
class Engine {
 public:
  // Weights, tokenizer and model must outlive the engine. Reserves its share of the arena.
  Engine(const Model& model, const Tokenizer& tokenizer, const TensorStore& weights,
         const std::shared_ptr<Arena>& arena, const EngineOptions& options);
  // With the programs that add_generation() put into a workspace, which is allocated and outlives the engine.
  Engine(const Model& model, const Tokenizer& tokenizer, Workspace& workspace, const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Throws Error where the request does not fit: an empty prompt, a token outside the vocabulary, no room for one new
  // token (both lengths are said), a repetition penalty that is not above 0.
  RequestId add(Request request);
  // Ends a request with FinishReason::abort. One that has finished stays as it is.
  void cancel(RequestId id);
  [[nodiscard]] bool has_work() const;

  // What one step brought a request.
  struct Update {
    RequestId id = 0;
    std::string_view text;  // new text, never a part of a character; valid until the next call
    FinishReason finish_reason = FinishReason::none;
  };
  // One forward pass.
  [[nodiscard]] std::vector<Update> step();
  // The loop of all that generates: steps until no request is left, telling on_update what each brought. `refill` is
  // called before each step and may add requests. At Ctrl+C, all requests are cancelled and Interrupted is thrown.
  void run(const std::function<void(const Update&)>& on_update, const std::function<void()>& refill = {});
  // Takes a request's result out of the engine once it has finished.
  [[nodiscard]] Completion take(RequestId id);

  // Runs all requests to their end; results in the order of the requests. on_finish(done) is called as each ends.
  // Throws Interrupted at Ctrl+C.
  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests,
                                                 const std::function<void(std::int64_t done)>& on_finish = {});

  struct Statistics {
    std::int64_t steps = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t generated_tokens = 0;
    std::int64_t preemptions = 0;
  };
  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] std::int64_t kv_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
