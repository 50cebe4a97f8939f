// The state of an engine, and its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"
#include "engine/engine_group.h"
#include "engine/generation_workspace.h"
#include "engine/request_stream.h"

namespace hone {

inline constexpr TokenId kNoDraft = -1;

struct Engine::Impl {
  // A step that was launched and whose samples have not been read.
  struct LaunchedStep {
    struct Sample {
      RequestId id = 0;
      std::size_t index = 0;       // of the token in the sequence
      TokenId drafted = kNoDraft;  // the draft's token there: what was drawn after it counts only if it is drawn
      bool of_prompt = false;      // the token is one of the prompt
      std::int64_t listed = 0;     // most probable tokens to list with it
    };
    std::vector<Sample> samples;
    std::vector<std::int32_t> tokens;   // [samples], filled when the device has reached the mark
    std::vector<float> logps;           // [samples], likewise
    std::vector<std::int32_t> drafts;   // [samples], likewise; empty unless a layer of the model proposes tokens
    std::vector<std::int32_t> top_ids;  // [samples, max_logprobs], likewise; empty if no sample lists tokens
    std::vector<float> top_logps;       // [samples, max_logprobs], likewise
    DeviceMark end;
    // These are set while the step has only begun: its program, which waits for the masks of the chunks.
    Executable* begun = nullptr;
    std::vector<ScheduledChunk> chunks;
  };

  const Model& model;
  const Tokenizer& tokenizer;
  EngineOptions options;
  std::unique_ptr<Workspace> own;  // null if the programs belong to a run's workspace
  Workspace& workspace;
  std::vector<StepCapacity> capacities;
  std::vector<Executable*> programs;  // [capacities]
  std::size_t most_launched = 1;      // steps that may be under way
  EngineGroup* group = nullptr;       // null: this process has the whole model
  Scheduler scheduler;
  std::map<RequestId, RequestStream> streams;
  std::deque<LaunchedStep> launched;  // oldest first; the device writes into the elements
  RequestId next_id = 0;
  Statistics statistics;

  Impl(const Model& model_, const Tokenizer& tokenizer_, std::unique_ptr<Workspace> own_, Workspace* shared,
       const EngineOptions& options_)
      : model(model_),
        tokenizer(tokenizer_),
        options(options_),
        own(std::move(own_)),
        workspace(own ? *own : *shared),
        capacities(engine_capacities(options, workspace.device_kind())),
        scheduler({.max_num_seqs = options.max_num_seqs,
                   .max_batch_tokens = options.max_batch_tokens,
                   .block_size = options.block_size,
                   .enable_prefix_caching = options.enable_prefix_caching,
                   .max_prompt_samples = options.max_prompt_samples},
                  options.num_blocks) {
    for (const StepCapacity& capacity : capacities) programs.push_back(&workspace.executable(program_name(capacity)));
    const bool waits = device().kind() == DeviceKind::kCpu || options.num_speculative_tokens > 0;
    most_launched = options.launch_ahead.value_or(!waits) ? 2 : 1;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    try {
      discard_launched();
    } catch (const Error&) {
      return;  // the next use of the device reports the error again
    }
  }

  [[nodiscard]] Device& device() const { return programs.front()->device(); }

  // Runs a program on the chunks of a step, on all ranks.
  void run(Executable& program, std::span<const ScheduledChunk> chunks);
  // The same in two parts: the first computes what needs no masks.
  void begin(Executable& program, std::span<const ScheduledChunk> chunks);
  void finish(Executable& program, std::span<const ScheduledChunk> chunks);
  // Sends the followers an order to do to a program what this rank does, with the inputs that this rank has set.
  void order(GroupOrder order, const Executable& program) const;
  // Has the followers wait for their runs; this rank has waited for its.
  void settle_group() {
    if (group != nullptr && group->leads()) group->settle();
  }
  // Returns the smallest program that holds the step.
  [[nodiscard]] Executable& program_for(std::span<const ScheduledChunk> chunks) const;

  // Proposes tokens for the sequences that are decoding.
  void draft();
  // Schedules and launches a step. Returns false if there is nothing to compute. If samples need masks that follow from
  // the step before, the step only begins, and read_oldest() finishes it.
  bool launch();
  // Has the results of a step that has been launched read when the device reaches its end.
  void read_later(LaunchedStep& step, const Executable& program) const;
  // Adds the samples of a chunk to a step, and to its sequence the token that it draws next.
  void add_samples(const ScheduledChunk& chunk, LaunchedStep& step) const;
  static std::vector<TokenLogprob> listed_tokens(const LaunchedStep& step, std::size_t sample,
                                                 std::int64_t max_logprobs);
  // Gives a sample of a step that has been read to its request. Returns false if the request drew another token than
  // its draft has there, so that its samples after this one are void.
  bool accept(const LaunchedStep& step, std::size_t sample, RequestStream& stream);
  // Computes the masks that follow from the tokens of a step that has been read, while the device computes the next.
  void follow_grammars(const LaunchedStep& step);
  // Waits for the oldest launched step and gives its tokens to their requests.
  std::vector<Update> read_oldest();
  // Waits for all launched steps and drops their samples.
  void discard_launched() {
    for (const LaunchedStep& step : launched)
      if (step.begun == nullptr) device().wait(step.end);
    launched.clear();
  }
  // Ends what is under way when no work is left: a caller that sees this may change the weights or reuse the memory.
  void rest() {
    discard_launched();
    settle_group();
    if (workspace.shares_training_memory_with_rollouts()) scheduler.invalidate_prefixes();
  }
};

}  // namespace hone
