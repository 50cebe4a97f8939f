#include "engine/engine.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "backend/collective.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "engine/engine_impl.h"
#include "engine/request_check.h"
#include "engine/step_inputs.h"

namespace hone {

Engine::Engine(const Model& model, const Tokenizer& tokenizer, const TensorStore& weights,
               const std::shared_ptr<Arena>& arena, const EngineOptions& options, EngineGroup* group) {
  if (group != nullptr && group->leads()) group->send_value(GroupOrder::kMakeEngine, options);
  const auto make = [&] {
    impl_ = std::make_unique<Impl>(model, tokenizer, workspace_of(model, weights, arena, options), nullptr,
                                   resolved(options));
    impl_->group = group;
  };
  if (const std::exception_ptr error = run_together(group, make)) std::rethrow_exception(error);
}

Engine::Engine(const Model& model, const Tokenizer& tokenizer, Workspace& workspace, const EngineOptions& options,
               EngineGroup* group)
    : impl_(
          std::make_unique<Impl>(model, tokenizer, nullptr, &workspace, with_blocks_of(workspace, resolved(options)))) {
  impl_->group = group;
}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::prepare() {
  HONE_ASSERT(!has_work(), "an engine with requests is prepared");
  for (Executable* program : impl_->programs) {
    for (int run = 0; run < 2; ++run) impl_->run(*program, {});
    if (!impl_->options.adjust_logits || impl_->most_launched == 1) continue;
    impl_->begin(*program, {});
    impl_->finish(*program, {});
  }
  impl_->device().synchronize();
  check_operations();
  impl_->settle_group();
}

void Engine::follow_begin(std::size_t program, std::string_view changes) {
  Executable& executable = *impl_->programs.at(program);
  executable.set_changes(changes);
  executable.begin(kLateInput);
}

void Engine::follow(std::size_t program, std::string_view changes) {
  Executable& executable = *impl_->programs.at(program);
  executable.set_changes(changes);
  executable.run();
}

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
  const DrawnTokens begun = std::move(request.begun);
  for (const std::vector<TokenId>& tokens : {std::cref(request.prompt), std::cref(begun.tokens)}) {
    for (const TokenId token : tokens) {
      if (token >= 0 && token < impl.model.shape().vocab_size) continue;
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
  HONE_ASSERT(!request.adjusts_logits() || impl.options.adjust_logits,
              "the engine was created without EngineOptions::adjust_logits");
  HONE_ASSERT(!request.sampling.prompt_logprobs || impl.options.max_prompt_samples > 0,
              "the engine was created without EngineOptions::max_prompt_samples");
  HONE_ASSERT(request.adapter.slot < impl.options.adapter_slots, "slot ", request.adapter.slot, " of ",
              impl.options.adapter_slots);
  HONE_ASSERT(begun.tokens.size() == begun.logps.size(), begun.tokens.size(), " and ", begun.logps.size());
  HONE_ASSERT(begun.tokens.empty() || (request.sampling.logprobs == 0 && !request.sampling.prompt_logprobs),
              "a completion that has begun lists no tokens");
  const RequestId id = impl.next_id++;
  impl.statistics.prompt_tokens += length;
  const auto added =
      impl.streams.try_emplace(id, impl.tokenizer, id, std::move(request), impl.model.shape().vocab_size);
  RequestStream& stream = added.first->second;
  stream.begin(begun, impl.options.max_model_len);
  if (!stream.finished()) impl.scheduler.add(stream.sequence);
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

Device& Engine::device() const { return impl_->device(); }

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
  impl_->settle_group();
  if (!has_work()) impl_->rest();
}

const Completion& Engine::completion(RequestId id) const {
  const auto found = impl_->streams.find(id);
  HONE_ASSERT(found != impl_->streams.end(), "the engine has no request ", id);
  return found->second.completion;
}

std::chrono::steady_clock::time_point Engine::started(RequestId id) const {
  const auto found = impl_->streams.find(id);
  HONE_ASSERT(found != impl_->streams.end(), "the engine has no request ", id);
  return found->second.sequence.started;
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
                                         const std::function<void(std::size_t, const Completion&)>& on_finish) {
  return generate(requests, {}, on_finish).completions;
}

Generated Engine::generate(std::span<const Request> requests, std::span<const Request> ahead,
                           const std::function<void(std::size_t, const Completion&)>& on_finish) {
  // Blocks that an earlier call has left would decide how far the requests ahead come.
  if (!ahead.empty()) forget_prefixes();
  const auto add_all = [&](std::span<const Request> these) {
    std::vector<RequestId> ids;  // ascending
    for (const Request& request : these) ids.push_back(add(request));
    return ids;
  };
  const std::vector<RequestId> ids = add_all(requests);
  const std::vector<RequestId> later = add_all(ahead);
  std::size_t open = ids.size();  // of `requests`, without what is complete
  const auto note_end = [&](RequestId id) {
    const auto found = std::ranges::lower_bound(ids, id);
    if (found == ids.end() || *found != id || completion(id).finish_reason == FinishReason::kNone) return;
    --open;
    if (on_finish) on_finish(static_cast<std::size_t>(found - ids.begin()), completion(id));
  };
  for (const RequestId id : ids) note_end(id);
  const auto on_update = [&](const Update& update) { note_end(update.id); };
  run(on_update, [&] {
    if (open > 0 || later.empty()) return;
    settle(on_update);
    for (const RequestId id : later) cancel(id);
  });
  const auto take_all = [&](const std::vector<RequestId>& these) {
    std::vector<Completion> completions;
    completions.reserve(these.size());
    for (const RequestId id : these) completions.push_back(take(id));
    return completions;
  };
  return {take_all(ids), take_all(later)};
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
