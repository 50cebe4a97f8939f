#include "engine/engine.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "engine/generation_program.h"
#include "model/weights.h"
#include "ops/sample/sample.h"
#include "text/detokenizer.h"

namespace hone {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
  }
  return "none";
}

namespace {

constexpr const char* kKvStore = "kv_cache";

std::string program_name(const Capacity& capacity) { return text_of("generation of ", capacity.tokens, " tokens"); }

// Creates the workspace of an engine on existing weights.
std::unique_ptr<Workspace> workspace_of(const Model& model, const TensorStore& weights,
                                        const std::shared_ptr<Arena>& arena, const EngineOptions& options) {
  auto workspace = std::make_unique<Workspace>(arena);
  workspace->add_weights(kWeightStore, weights.tensors());
  add_generation(*workspace, model, model_dtype(model, weights), options);
  workspace->provide(kWeightStore, weights.view());
  workspace->allocate(arena->device());
  return workspace;
}

}  // namespace

void add_generation(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& given) {
  const EngineOptions options = resolved(given);
  check_positions(model.shape(), options.max_model_len, "max_model_len");
  for (const Capacity& capacity : engine_capacities(options)) {
    workspace.add(program_name(capacity),
                  trace_generation(model, {.capacity = capacity,
                                           .layout = kv_layout(options),
                                           .dtype = dtype,
                                           .repetition_penalty = options.repetition_penalty}),
                  {.phase = Region::rollout, .states = {.name = kKvStore, .region = Region::rollout}});
  }
}

// The client's view of a request: its completion so far and the text handed out in updates.
struct RequestStream {
  RequestStream(const Tokenizer& tokenizer, SamplingParams params)
      : detokenizer(tokenizer, true), sampling(std::move(params)) {}

  Detokenizer detokenizer;
  SamplingParams sampling;
  Completion completion;
  std::size_t released = 0;  // bytes of completion.text handed out in updates

  // Length in bytes of the text that can no longer become part of a stop string.
  [[nodiscard]] std::size_t safe_length() const {
    std::size_t safe = completion.text.size();
    for (const std::string& stop : sampling.stop) {
      for (std::size_t length = std::min(stop.size() - 1, completion.text.size()); length > 0; --length) {
        if (completion.text.ends_with(std::string_view(stop).substr(0, length))) {
          safe = std::min(safe, completion.text.size() - length);
          break;
        }
      }
    }
    return safe;
  }

  // Appends text and cuts it at the first stop string. Returns true if there is one.
  bool add_text(const std::string& piece) {
    const std::size_t before = completion.text.size();
    completion.text += piece;
    std::size_t cut = std::string::npos;
    for (const std::string& stop : sampling.stop) {
      const std::size_t from = before > stop.size() ? before - stop.size() : 0;
      cut = std::min(cut, completion.text.find(stop, from));
    }
    if (cut == std::string::npos) return false;
    completion.text.resize(cut);
    return true;
  }
};

struct Engine::Impl {
  const Model& model;
  const Tokenizer& tokenizer;
  EngineOptions options;
  std::unique_ptr<Workspace> own;  // null if the programs belong to a run's workspace
  Workspace& workspace;
  std::vector<Capacity> capacities;
  std::vector<Executable*> programs;  // [capacities]
  Scheduler scheduler;
  std::map<RequestId, RequestStream> streams;
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
        scheduler({options.max_num_seqs, options.max_batch_tokens, options.block_size}, options.num_blocks) {
    for (const Capacity& capacity : capacities) programs.push_back(&workspace.executable(program_name(capacity)));
  }

  // Returns the smallest program that holds the step.
  Executable& program_for(std::int64_t tokens, std::int64_t sequences) {
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      if (capacities[i].tokens >= tokens && capacities[i].sequences >= sequences) return *programs[i];
    }
    throw Defect(text_of("no program holds ", tokens, " tokens of ", sequences, " sequences"));
  }

  // Writes the inputs of a step. Returns the sequences that get a token, in the order of the program's samples.
  std::vector<Sequence*> feed(Executable& program, const std::vector<ScheduledChunk>& chunks);
  void feed_penalties(Executable& program, std::span<Sequence* const> sampled) const;
  // Appends a token to its sequence. Returns the reason why the request finished, or none.
  FinishReason accept(Sequence& sequence, RequestStream& stream, TokenId token, float logp) const;
};

std::vector<Sequence*> Engine::Impl::feed(Executable& program, const std::vector<ScheduledChunk>& chunks) {
  const std::int64_t max_blocks = kv_layout(options).max_blocks;
  const ValueId cu_id = program.program().find(Role::input, "cu_seqlens");
  const auto cu_entries = static_cast<std::size_t>(program.program().value(cu_id).type.elements());
  // tokens, positions, slots: [tokens]; starts: [sequences]; cu_seqlens: [sequences + 1];
  // table: [sequences, max_blocks]; rows: [samples].
  std::vector<std::int32_t> tokens, positions, slots, starts, cu_seqlens{0}, table, rows;
  std::vector<float> parameters;   // [samples, 4]: temperature, top_p, min_p, top_k
  std::vector<std::int64_t> keys;  // [samples, 2]: seed, index of the token to draw
  std::vector<Sequence*> sampled;
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    starts.push_back(static_cast<std::int32_t>(sequence.computed));
    for (std::int64_t i = sequence.computed; i < sequence.computed + chunk.count; ++i) {
      tokens.push_back(sequence.tokens[static_cast<std::size_t>(i)]);
      positions.push_back(static_cast<std::int32_t>(i));
      const BlockId block = sequence.blocks[static_cast<std::size_t>(i / options.block_size)];
      slots.push_back(static_cast<std::int32_t>(block * options.block_size + i % options.block_size));
    }
    cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
    table.insert(table.end(), sequence.blocks.begin(), sequence.blocks.end());
    table.resize(starts.size() * static_cast<std::size_t>(max_blocks), 0);
    if (!chunk.samples) continue;
    rows.push_back(static_cast<std::int32_t>(tokens.size()) - 1);
    const SamplingParams& s = sequence.sampling;
    parameters.insert(parameters.end(), {static_cast<float>(s.temperature), static_cast<float>(s.top_p),
                                         static_cast<float>(s.min_p), static_cast<float>(s.top_k)});
    keys.insert(keys.end(), {static_cast<std::int64_t>(s.seed), sequence.length()});
    sampled.push_back(chunk.sequence);
  }
  cu_seqlens.resize(cu_entries, cu_seqlens.back());
  program.set_count(Count::tokens, static_cast<std::int64_t>(tokens.size()));
  program.set_count(Count::sequences, static_cast<std::int64_t>(starts.size()));
  program.set_count(Count::samples, static_cast<std::int64_t>(rows.size()));
  program.set<std::int32_t>("tokens", tokens);
  program.set<std::int32_t>("positions", positions);
  program.set<std::int32_t>("slots", slots);
  program.set<std::int32_t>("starts", starts);
  program.set<std::int32_t>("cu_seqlens", cu_seqlens);
  program.set<std::int32_t>("block_table", table);
  program.set<std::int32_t>("sample_rows", rows);
  program.set<float>("parameters", parameters);
  program.set<std::int64_t>("keys", keys);
  if (options.repetition_penalty) feed_penalties(program, sampled);
  return sampled;
}

void Engine::Impl::feed_penalties(Executable& program, std::span<Sequence* const> sampled) const {
  std::vector<float> penalties;          // [samples]
  std::vector<std::int32_t> offsets{0};  // [samples + 1]
  std::vector<std::int32_t> ids;         // occurred ids of all samples
  for (const Sequence* sequence : sampled) {
    penalties.push_back(static_cast<float>(sequence->sampling.repetition_penalty));
    if (sequence->occurred) {
      const std::span<const TokenId> occurred = sequence->occurred->ids();
      ids.insert(ids.end(), occurred.begin(), occurred.end());
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
  }
  program.set<float>("penalties", penalties);
  program.set<std::int32_t>("occurred_offsets", offsets);
  program.set<std::int32_t>("occurred_ids", ids);
}

FinishReason Engine::Impl::accept(Sequence& sequence, RequestStream& stream, TokenId token, float logp) const {
  sequence.tokens.push_back(token);
  if (sequence.occurred) sequence.occurred->add(token);
  stream.completion.tokens.push_back(token);
  stream.completion.logps.push_back(logp);
  const std::vector<TokenId>& stops = sequence.sampling.stop_token_ids;
  const bool stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
  const bool full = sequence.generated() >= sequence.sampling.max_tokens || sequence.length() >= options.max_model_len;
  std::string piece = stopped ? std::string() : stream.detokenizer.add(token);
  if (stopped || full) piece += stream.detokenizer.flush();
  if (stream.add_text(piece) || stopped) return FinishReason::stop;
  return full ? FinishReason::length : FinishReason::none;
}

Engine::Engine(const Model& model, const Tokenizer& tokenizer, const TensorStore& weights,
               const std::shared_ptr<Arena>& arena, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, tokenizer, workspace_of(model, weights, arena, options), nullptr,
                                   resolved(options))) {}

Engine::Engine(const Model& model, const Tokenizer& tokenizer, Workspace& workspace, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, tokenizer, nullptr, &workspace, resolved(options))) {}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

RequestId Engine::add(Request request) {
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
  const double penalty = request.sampling.repetition_penalty;
  if (!(penalty > 0))
    throw Error("repetition_penalty", text_of("is ", penalty, ", expected above 0"), "1 turns it off");
  HONE_ASSERT(penalty == 1 || impl.options.repetition_penalty,
              "the engine was created without EngineOptions::repetition_penalty");
  std::erase_if(request.sampling.stop, [](const std::string& stop) { return stop.empty(); });
  auto sequence = std::make_unique<Sequence>();
  sequence->id = impl.next_id++;
  sequence->sampling = request.sampling;
  sequence->tokens = std::move(request.prompt);
  sequence->prompt_length = length;
  if (penalty != 1) {
    OccurredIds& occurred = sequence->occurred.emplace(impl.model.shape().vocab_size);
    for (const TokenId token : sequence->tokens) occurred.add(token);
  }
  const RequestId id = sequence->id;
  impl.statistics.prompt_tokens += length;
  impl.streams.try_emplace(id, impl.tokenizer, std::move(request.sampling));
  impl.scheduler.add(std::move(sequence));
  return id;
}

void Engine::cancel(RequestId id) {
  impl_->scheduler.remove(id);
  const auto found = impl_->streams.find(id);
  if (found == impl_->streams.end()) return;
  FinishReason& reason = found->second.completion.finish_reason;
  if (reason == FinishReason::none) reason = FinishReason::abort;
}

bool Engine::has_work() const { return impl_->scheduler.has_work(); }

std::vector<Engine::Update> Engine::step() {
  Impl& impl = *impl_;
  const std::vector<ScheduledChunk> chunks = impl.scheduler.schedule();
  std::int64_t tokens = 0;
  for (const ScheduledChunk& chunk : chunks) tokens += chunk.count;
  Executable& program = impl.program_for(tokens, static_cast<std::int64_t>(chunks.size()));
  const std::vector<Sequence*> sampled = impl.feed(program, chunks);
  program.run();
  ++impl.statistics.steps;
  for (const ScheduledChunk& chunk : chunks) chunk.sequence->computed += chunk.count;

  // Read the sampled tokens back and update their requests. Text that could begin a stop string is held back until the
  // request finishes or the text continues differently.
  std::vector<std::int32_t> drawn(sampled.size());
  std::vector<float> logps(sampled.size());
  program.get<std::int32_t>("token", drawn);
  program.get<float>("logp", logps);
  std::vector<Update> updates;
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    RequestStream& stream = impl.streams.at(sampled[i]->id);
    const RequestId id = sampled[i]->id;
    const FinishReason reason = impl.accept(*sampled[i], stream, drawn[i], logps[i]);
    ++impl.statistics.generated_tokens;
    stream.completion.finish_reason = reason;
    if (reason != FinishReason::none) impl.scheduler.remove(id);
    const std::size_t safe =
        std::max(stream.released, reason == FinishReason::none ? stream.safe_length() : stream.completion.text.size());
    const std::string_view text =
        std::string_view(stream.completion.text).substr(stream.released, safe - stream.released);
    stream.released = safe;
    updates.push_back({id, text, reason});
  }
  return updates;
}

Completion Engine::take(RequestId id) {
  const auto found = impl_->streams.find(id);
  HONE_ASSERT(found != impl_->streams.end() && found->second.completion.finish_reason != FinishReason::none, "request ",
              id, " has not finished");
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
    if (update.finish_reason != FinishReason::none && on_finish) on_finish(++done);
  });
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(take(id));
  return completions;
}

Engine::Statistics Engine::statistics() const {
  Statistics statistics = impl_->statistics;
  statistics.preemptions = impl_->scheduler.preemptions();
  return statistics;
}

std::int64_t Engine::kv_bytes() const { return static_cast<std::int64_t>(impl_->workspace.store(kKvStore).bytes()); }

}  // namespace hone
