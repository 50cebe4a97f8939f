#include "engine/engine_impl.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "backend/collective.h"
#include "core/parallel.h"
#include "engine/step_inputs.h"
#include "ops/token_feedback/token_feedback.h"

namespace hone {

namespace {

// Notes the time in sequences that are in a step for the first time.
void note_start(std::span<const ScheduledChunk> chunks) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  for (const ScheduledChunk& chunk : chunks)
    if (chunk.sequence->started == Clock::time_point{}) chunk.sequence->started = now;
}

}  // namespace

void Engine::Impl::draft() {
  if (options.num_speculative_tokens == 0) return;
  for (auto& [id, stream] : streams) {
    Sequence& sequence = stream.sequence;
    sequence.draft.clear();
    if (stream.finished() || sequence.pending() != 1 || sequence.entries || !sequence.mask.empty()) continue;
    // The step draws one token more than the draft has.
    const std::int64_t most =
        std::min(sequence.sampling.max_tokens - sequence.generated(), options.max_model_len - sequence.length()) - 1;
    const std::int64_t count = std::min(most, options.num_speculative_tokens);
    sequence.draft = options.drafts_by_prediction() ? stream.predicted(count) : stream.propose(count);
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
                            .drafted = i + 1 < chunk.samples ? sequence.draft[static_cast<std::size_t>(i)] : kNoDraft,
                            .listed = sequence.sampling.logprobs});
  }
  sequence.tokens.push_back(unread);
  sequence.complete =
      sequence.generated() >= sequence.sampling.max_tokens || sequence.length() >= options.max_model_len;
}

void Engine::Impl::order(GroupOrder order, const Executable& program) const {
  if (group == nullptr) return;
  const auto number = static_cast<std::size_t>(std::ranges::find(programs, &program) - programs.begin());
  group->send_run(order, number, program.changes());
}

Executable& Engine::Impl::program_for(std::span<const ScheduledChunk> chunks) const {
  std::int64_t tokens = 0;
  bool computes_prompts = false;
  for (const ScheduledChunk& chunk : chunks) {
    tokens += chunk.count;
    computes_prompts = computes_prompts || chunk.count > 1 + options.num_speculative_tokens;
  }
  return *programs[capacity_of_step(capacities, tokens, computes_prompts)];
}

void Engine::Impl::run(Executable& program, std::span<const ScheduledChunk> chunks) {
  set_step_inputs(program, chunks, options);
  finish(program, chunks);
}

void Engine::Impl::begin(Executable& program, std::span<const ScheduledChunk> chunks) {
  set_step_inputs(program, chunks, options);
  order(GroupOrder::kBeginEngine, program);
  program.begin(kLateInput);
}

void Engine::Impl::finish(Executable& program, std::span<const ScheduledChunk> chunks) {
  if (options.adjust_logits) set_masks(program, chunks);
  order(GroupOrder::kRunEngine, program);
  program.run();
}

void Engine::Impl::read_later(LaunchedStep& step, const Executable& program) const {
  program.get_later<std::int32_t>("token", step.tokens);
  program.get_later<float>("logp", step.logps);
  if (!step.drafts.empty()) program.get_later<std::int32_t>("draft", step.drafts);
  if (!step.top_ids.empty()) {
    program.get_later<std::int32_t>("top_ids", step.top_ids);
    program.get_later<float>("top_logps", step.top_logps);
  }
  step.end = device().mark();
}

bool Engine::Impl::launch() {
  draft();
  const std::vector<ScheduledChunk> chunks = scheduler.schedule();
  if (chunks.empty()) return false;
  note_start(chunks);
  Executable& program = program_for(chunks);
  const bool begins = waits_for_masks(chunks);
  begins ? begin(program, chunks) : run(program, chunks);
  ++statistics.steps;

  LaunchedStep& step = launched.emplace_back();
  for (const ScheduledChunk& chunk : chunks) add_samples(chunk, step);
  step.tokens.resize(step.samples.size());
  step.logps.resize(step.samples.size());
  if (options.drafts_by_prediction()) step.drafts.resize(step.samples.size());
  if (std::ranges::any_of(step.samples, [](const LaunchedStep::Sample& sample) { return sample.listed > 0; })) {
    const std::size_t listed = step.samples.size() * static_cast<std::size_t>(options.max_logprobs);
    step.top_ids.resize(listed);
    step.top_logps.resize(listed);
  }
  if (begins) {
    step.begun = &program;
    step.chunks = chunks;
  } else {
    read_later(step, program);
  }
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
  if (!step.drafts.empty()) stream.predict(step.drafts[i]);
  ++statistics.generated_tokens;
  if (sample.drafted == kNoDraft) return true;
  ++statistics.drafted_tokens;
  if (sample.drafted != step.tokens[i]) return false;
  ++statistics.accepted_tokens;
  ++stream.sequence.computed;
  return true;
}

void Engine::Impl::follow_grammars(const LaunchedStep& step) {
  std::vector<std::pair<RequestStream*, TokenId>> constrained;  // each stream once: it has one sample and no draft
  for (std::size_t i = 0; i < step.samples.size(); ++i) {
    if (step.samples[i].of_prompt) continue;
    const auto found = streams.find(step.samples[i].id);
    if (found == streams.end() || found->second.finished() || !found->second.is_constrained()) continue;
    constrained.emplace_back(&found->second, step.tokens[i]);
  }
  parallel_for(std::ssize(constrained), 1, [&](std::int64_t begin, std::int64_t end) {
    for (const auto& [stream, token] :
         std::span(constrained).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)))
      stream->follow_grammar(token);
  });
}

std::vector<Engine::Update> Engine::Impl::read_oldest() {
  const LaunchedStep& step = launched.front();
  device().wait(step.end);
  check_operations();  // of a tensor group, before its tokens are taken
  if (launched.size() > 1) expect_operations();
  follow_grammars(step);
  if (LaunchedStep& next = launched.back(); next.begun != nullptr) {
    HONE_ASSERT(&next != &step, "a step waits for its own tokens");
    Executable& program = *std::exchange(next.begun, nullptr);
    finish(program, next.chunks);
    read_later(next, program);
  }
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

}  // namespace hone
