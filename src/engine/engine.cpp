#include "engine/engine.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "engine/generation_workspace.h"
#include "engine/request_check.h"
#include "engine/request_stream.h"
#include "engine/step_inputs.h"
#include "ops/token_feedback/token_feedback.h"

namespace hone {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
  }
  return "none";
}

namespace {

constexpr TokenId kNoToken = -1;

}  // namespace

struct Engine::Impl {
  // A step that was launched and whose samples have not been read.
  struct LaunchedStep {
    struct Sample {
      RequestId id = 0;
      std::size_t index = 0;       // of the token in the sequence
      TokenId drafted = kNoToken;  // the draft's token there: what was drawn after it counts only if it is drawn
      bool of_prompt = false;      // the token is one of the prompt
      std::int64_t listed = 0;     // most probable tokens to list with it
    };
    std::vector<Sample> samples;
    std::vector<std::int32_t> tokens;   // [samples], filled when the device has reached the mark
    std::vector<float> logps;           // [samples], likewise
    std::vector<std::int32_t> top_ids;  // [samples, max_logprobs], likewise; empty if no sample lists tokens
    std::vector<float> top_logps;       // [samples, max_logprobs], likewise
    DeviceMark end;
  };

  const Model& model;
  const Tokenizer& tokenizer;
  EngineOptions options;
  std::unique_ptr<Workspace> own;  // null if the programs belong to a run's workspace
  Workspace& workspace;
  std::vector<Capacity> capacities;
  std::vector<Executable*> programs;  // [capacities]
  std::size_t most_launched = 1;      // steps that may be under way
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
        capacities(engine_capacities(options)),
        scheduler({.max_num_seqs = options.max_num_seqs,
                   .max_batch_tokens = options.max_batch_tokens,
                   .block_size = options.block_size,
                   .enable_prefix_caching = options.enable_prefix_caching,
                   .max_prompt_samples = options.max_prompt_samples},
                  options.num_blocks) {
    for (const Capacity& capacity : capacities) programs.push_back(&workspace.executable(program_name(capacity)));
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

  // Returns the smallest program that holds the step.
  Executable& program_for(std::int64_t tokens) {
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      if (capacities[i].tokens >= tokens) return *programs[i];
    }
    throw Defect(text_of("no program holds ", tokens, " tokens"));
  }

  // Proposes tokens for the sequences that are decoding.
  void draft();
  // Schedules and launches a step. Returns false if there is nothing to compute.
  bool launch();
  // Adds the samples of a chunk to a step, and to its sequence the token that it draws next.
  void add_samples(const ScheduledChunk& chunk, LaunchedStep& step) const;
  static std::vector<TokenLogprob> listed_tokens(const LaunchedStep& step, std::size_t sample,
                                                 std::int64_t max_logprobs);
  // Gives a sample of a step that has been read to its request. Returns false if the request drew another token than
  // its draft has there, so that its samples after this one are void.
  bool accept(const LaunchedStep& step, std::size_t sample, RequestStream& stream);
  // Waits for the oldest launched step and gives its tokens to their requests.
  std::vector<Update> read_oldest();
  // Waits for all launched steps and drops their samples.
  void discard_launched() {
    if (!launched.empty()) device().wait(launched.back().end);
    launched.clear();
  }
  // Ends what is under way when no work is left: a caller that sees this may change the weights or reuse the memory.
  void rest() {
    discard_launched();
    if (workspace.shares_training_memory_with_rollouts()) scheduler.invalidate_prefixes();
  }
};

void Engine::Impl::draft() {
  if (options.num_speculative_tokens == 0) return;
  for (auto& [id, stream] : streams) {
    Sequence& sequence = stream.sequence;
    sequence.draft.clear();
    if (stream.finished() || sequence.pending() != 1 || sequence.entries) continue;
    // The step draws one token more than the draft has.
    const std::int64_t most =
        std::min(sequence.sampling.max_tokens - sequence.generated(), options.max_model_len - sequence.length()) - 1;
    sequence.draft = stream.propose(std::min(most, options.num_speculative_tokens));
  }
}

void Engine::Impl::add_samples(const ScheduledChunk& chunk, LaunchedStep& step) const {
  Sequence& sequence = *chunk.sequence;
  for (std::int64_t i = 0; i < chunk.prompt_samples; ++i) {
    step.samples.push_back({.id = sequence.id,
                            .index = static_cast<std::size_t>(sequence.computed + i + 1),
                            .of_prompt = true,
                            .listed = sequence.sampling.prompt_logprobs.value_or(0)});
  }
  sequence.computed += chunk.count - std::max<std::int64_t>(chunk.samples - 1, 0);
  if (chunk.samples == 0) return;
  const TokenId unread = token_of_sample(std::ssize(step.samples));
  for (std::int64_t i = 0; i < chunk.samples; ++i) {
    step.samples.push_back({.id = sequence.id,
                            .index = sequence.tokens.size() + static_cast<std::size_t>(i),
                            .drafted = i + 1 < chunk.samples ? sequence.draft[static_cast<std::size_t>(i)] : kNoToken,
                            .listed = sequence.sampling.logprobs});
  }
  sequence.tokens.push_back(unread);
  sequence.complete =
      sequence.generated() >= sequence.sampling.max_tokens || sequence.length() >= options.max_model_len;
}

bool Engine::Impl::launch() {
  draft();
  const std::vector<ScheduledChunk> chunks = scheduler.schedule();
  if (chunks.empty()) return false;
  std::int64_t tokens = 0;
  for (const ScheduledChunk& chunk : chunks) tokens += chunk.count;
  Executable& program = program_for(tokens);
  set_step_inputs(program, chunks, options);
  program.run();
  ++statistics.steps;

  LaunchedStep& step = launched.emplace_back();
  for (const ScheduledChunk& chunk : chunks) add_samples(chunk, step);
  step.tokens.resize(step.samples.size());
  step.logps.resize(step.samples.size());
  program.get_later<std::int32_t>("token", step.tokens);
  program.get_later<float>("logp", step.logps);
  if (std::ranges::any_of(step.samples, [](const LaunchedStep::Sample& sample) { return sample.listed > 0; })) {
    const std::size_t listed = step.samples.size() * static_cast<std::size_t>(options.max_logprobs);
    step.top_ids.resize(listed);
    step.top_logps.resize(listed);
    program.get_later<std::int32_t>("top_ids", step.top_ids);
    program.get_later<float>("top_logps", step.top_logps);
  }
  step.end = device().mark();
  return true;
}

// Returns the tokens that are listed for a sample of a step that has been read.
std::vector<TokenLogprob> Engine::Impl::listed_tokens(const LaunchedStep& step, std::size_t sample,
                                                      std::int64_t max_logprobs) {
  std::vector<TokenLogprob> listed;
  const auto row = static_cast<std::size_t>(max_logprobs);
  for (std::size_t i = sample * row; i < (sample + 1) * row && step.top_ids[i] >= 0; ++i) {
    listed.push_back({step.top_ids[i], step.top_logps[i]});
  }
  return listed;
}

bool Engine::Impl::accept(const LaunchedStep& step, std::size_t i, RequestStream& stream) {
  const LaunchedStep::Sample& sample = step.samples[i];
  const auto listed = [&] { return listed_tokens(step, i, options.max_logprobs); };
  if (sample.of_prompt) {
    stream.accept_prompt(sample.index, step.logps[i]);
    if (sample.listed > 0) stream.list_prompt(listed());
    return true;
  }
  stream.accept(sample.index, {step.tokens[i], step.logps[i]}, options.max_model_len);
  if (sample.listed > 0) stream.list(listed());
  ++statistics.generated_tokens;
  if (sample.drafted == kNoToken) return true;
  ++statistics.drafted_tokens;
  if (sample.drafted != step.tokens[i]) return false;
  ++statistics.accepted_tokens;
  ++stream.sequence.computed;
  return true;
}

std::vector<Engine::Update> Engine::Impl::read_oldest() {
  const LaunchedStep& step = launched.front();
  device().wait(step.end);
  std::vector<Update> updates;
  for (std::size_t i = 0; i < step.samples.size();) {
    const RequestId id = step.samples[i].id;
    std::size_t end = i + 1;
    while (end < step.samples.size() && step.samples[end].id == id) ++end;
    const auto found = streams.find(id);
    // A request may have ended after this step was launched, or with one of the tokens that were proposed.
    if (found != streams.end() && !found->second.finished()) {
      RequestStream& stream = found->second;
      const std::size_t before = stream.completion.tokens.size();
      while (i < end && !stream.finished() && accept(step, i, stream)) ++i;
      if (stream.finished()) scheduler.remove(id);
      if (stream.completion.tokens.size() > before)
        updates.push_back({id, stream.new_text(), stream.completion.finish_reason});
    }
    i = end;
  }
  launched.pop_front();
  return updates;
}

Engine::Engine(const Model& model, const Tokenizer& tokenizer, const TensorStore& weights,
               const std::shared_ptr<Arena>& arena, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, tokenizer, workspace_of(model, weights, arena, options), nullptr,
                                   resolved(options))) {}

Engine::Engine(const Model& model, const Tokenizer& tokenizer, Workspace& workspace, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, tokenizer, nullptr, &workspace,
                                   with_blocks_of(workspace, resolved(options)))) {}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

RequestId Engine::add(Request request) {  // NOLINT(performance-unnecessary-value-param): it is moved
  Impl& impl = *impl_;
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) throw Error("prompt", "is empty");
  if (length >= impl.options.max_model_len) {
    throw Error("prompt", text_of("has ", length, " tokens; max_model_len is ", impl.options.max_model_len,
                                  ", which leaves no room for a completion"));
  }
  if (request.sampling.max_tokens < 1)
    throw Error("max_tokens", text_of("is ", request.sampling.max_tokens, ", expected at least 1"));
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= impl.model.shape().vocab_size) {
      throw Error("prompt", text_of("token ", token, " is outside the vocabulary of ", impl.model.shape().vocab_size));
    }
  }
  check_adjustments(request.sampling, impl.model.shape().vocab_size);
  const auto check_listed = [&](std::string_view name, std::int64_t listed) {
    if (listed >= 0 && listed <= impl.options.max_logprobs) return;
    throw Error(name, text_of("is ", listed, ", expected 0 to ", impl.options.max_logprobs));
  };
  check_listed("logprobs", request.sampling.logprobs);
  check_listed("prompt_logprobs", request.sampling.prompt_logprobs.value_or(0));
  HONE_ASSERT(!request.sampling.adjusts_logits() || impl.options.adjust_logits,
              "the engine was created without EngineOptions::adjust_logits");
  HONE_ASSERT(!request.sampling.prompt_logprobs || impl.options.max_prompt_samples > 0,
              "the engine was created without EngineOptions::max_prompt_samples");
  HONE_ASSERT(request.adapter.slot < impl.options.adapter_slots, "slot ", request.adapter.slot, " of ",
              impl.options.adapter_slots);
  const RequestId id = impl.next_id++;
  impl.statistics.prompt_tokens += length;
  const auto added = impl.streams.try_emplace(id, impl.tokenizer, id, std::move(request));
  impl.scheduler.add(added.first->second.sequence);
  return id;
}

void Engine::cancel(RequestId id) {
  impl_->scheduler.remove(id);
  const auto found = impl_->streams.find(id);
  if (found == impl_->streams.end()) return;
  FinishReason& reason = found->second.completion.finish_reason;
  if (reason == FinishReason::kNone) reason = FinishReason::kAbort;
  if (!has_work()) impl_->rest();
}

void Engine::weights_changed() {
  HONE_ASSERT(impl_->launched.empty() || !has_work(), "the weights have changed during a step");
  impl_->scheduler.restart();
  impl_->scheduler.invalidate_prefixes();
}

void Engine::forget_prefixes() { impl_->scheduler.invalidate_prefixes(); }

bool Engine::has_work() const { return impl_->scheduler.has_work(); }

std::vector<Engine::Update> Engine::step() {
  Impl& impl = *impl_;
  while (impl.launched.size() < impl.most_launched && impl.launch()) {
  }
  if (impl.launched.empty()) return {};
  std::vector<Update> updates = impl.read_oldest();
  if (!has_work()) impl.rest();
  return updates;
}

void Engine::settle(const std::function<void(const Update&)>& on_update) {
  while (!impl_->launched.empty()) {
    for (const Update& update : impl_->read_oldest()) on_update(update);
  }
  if (!has_work()) impl_->rest();
}

const Completion& Engine::completion(RequestId id) const {
  const auto found = impl_->streams.find(id);
  HONE_ASSERT(found != impl_->streams.end(), "the engine has no request ", id);
  return found->second.completion;
}

Completion Engine::take(RequestId id) {
  const auto found = impl_->streams.find(id);
  HONE_ASSERT(found != impl_->streams.end() && found->second.completion.finish_reason != FinishReason::kNone,
              "request ", id, " has not finished");
  Completion completion = std::move(found->second.completion);
  impl_->streams.erase(found);
  return completion;
}

void Engine::run(const std::function<void(const Update&)>& on_update, const std::function<void()>& refill) {
  while (true) {
    if (refill) refill();
    if (!has_work()) return;
    for (const Update& update : step()) on_update(update);
    if (interrupted()) {
      for (const auto& [id, stream] : impl_->streams) cancel(id);
      throw Interrupted();
    }
  }
}

std::vector<Completion> Engine::generate(std::span<const Request> requests,
                                         const std::function<void(std::int64_t)>& on_finish) {
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(add(request));
  std::int64_t done = 0;
  run([&](const Update& update) {
    if (update.finish_reason != FinishReason::kNone && on_finish) on_finish(++done);
  });
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(take(id));
  return completions;
}

Engine::Statistics Engine::statistics() const {
  Statistics statistics = impl_->statistics;
  statistics.preemptions = impl_->scheduler.preemptions();
  statistics.prefix_hit_tokens = impl_->scheduler.prefix_hit_tokens();
  const PrefixCache& cache = impl_->scheduler.cache();
  statistics.evicted_blocks = cache.evicted_blocks();
  statistics.running = impl_->scheduler.running();
  statistics.waiting = impl_->scheduler.waiting();
  statistics.kv_usage =
      1.0 - static_cast<double>(cache.pool().free_blocks()) / static_cast<double>(impl_->options.num_blocks);
  return statistics;
}

std::int64_t Engine::kv_bytes() const { return static_cast<std::int64_t>(impl_->workspace.store(kKvStore).bytes()); }

}  // namespace hone
