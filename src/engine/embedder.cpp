#include "engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/collective.h"
#include "compile/compiler.h"
#include "core/error.h"
#include "engine/engine_group.h"
#include "engine/generation_workspace.h"
#include "model/adapter_slots.h"
#include "model/weights.h"
#include "ops/cast/cast.h"
#include "ops/gather_rows/gather_rows.h"

namespace hone {
namespace {

constexpr std::int64_t kMostSequences = 64;  // inputs in one step
constexpr std::int64_t kSmallestCapacity = 32;

// Traces the model over chunks of inputs. Inputs: those of PagedBatch and "rows" i32 [samples]. Output: "hidden" f32
// [samples, hidden_size], the hidden states of these rows after the last norm.
Program trace_embedding(const Model& model, const Capacity& capacity, const KvLayout& layout, DType dtype) {
  Program program;
  PagedBatch batch(program, capacity, layout, DType::kF32);
  WeightBinder weights(program, model.traced_weights(), false);
  const Tensor hidden = model.forward(weights, batch);
  const Tensor rows = program.input("rows", {DType::kI32, {Dim(capacity.tokens, Count::samples)}});
  program.output("hidden", cast(gather_rows(hidden, rows), DType::kF32));
  const Compiler compiler({.dtype = dtype});
  return compiler.inference(model.adapted(std::move(program), {}));
}

std::string name_of_program(std::int64_t tokens) { return text_of("embeddings of ", tokens, " tokens"); }

// Scales a vector to length 1. A vector of zeros stays as it is.
std::vector<float> normalized(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 1;
  std::vector<float> result;
  result.reserve(values.size());
  for (const double value : values) result.push_back(static_cast<float>(value * scale));
  return result;
}

}  // namespace

Embedder::Embedder(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena,
                   const EmbedderOptions& options, EngineGroup* group)
    : options_(options), group_(group), hidden_size_(model.shape().hidden_size) {
  if (group != nullptr && group->leads()) group->send_value(GroupOrder::kMakeEmbedder, options);
  const std::exception_ptr error = run_together(group, [&] { make(model, weights, arena); });
  if (error) std::rethrow_exception(error);
}

void Embedder::make(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena) {
  const std::int64_t longest = (options_.max_model_len + options_.block_size - 1) / options_.block_size;
  layout_ = {.num_blocks = longest + kMostSequences, .block_size = options_.block_size, .max_blocks = longest};
  for (std::int64_t tokens = kSmallestCapacity; tokens < options_.max_batch_tokens; tokens *= 4)
    capacities_.push_back(tokens);
  capacities_.push_back(options_.max_batch_tokens);
  workspace_ = std::make_unique<Workspace>(arena);
  workspace_->add_weights(kWeightStore, weights.tensors());
  for (const std::int64_t tokens : capacities_) {
    const Capacity capacity{.tokens = tokens, .sequences = std::min(tokens, kMostSequences)};
    workspace_->add(name_of_program(tokens), trace_embedding(model, capacity, layout_, model_dtype(model, weights)),
                    {.phase = Region::kRollout,
                     .states = {.name = kKvStore, .region = Region::kRollout},
                     .inputs = "inputs of embeddings"});
  }
  workspace_->provide(kWeightStore, weights.view());
  workspace_->allocate(arena->device());
  for (const std::int64_t tokens : capacities_) programs_.push_back(&workspace_->executable(name_of_program(tokens)));
}

std::int64_t Embedder::blocks_of(std::size_t input) const {
  return (length(input) + layout_.block_size - 1) / layout_.block_size;
}

void Embedder::prepare() {
  for (std::size_t program = 0; program < programs_.size(); ++program) {
    (void)feed(*programs_[program], {});
    for (int repeat = 0; repeat < 2; ++repeat) run(program);
  }
  programs_.front()->device().synchronize();
  check_operations();
  if (group_ != nullptr) group_->settle();
}

void Embedder::run(std::size_t program) {
  if (group_ != nullptr) group_->send_run(GroupOrder::kRunEmbedder, program, programs_[program]->changes());
  programs_[program]->run();
}

void Embedder::follow(std::size_t program, std::string_view changes) {
  programs_.at(program)->set_changes(changes);
  programs_[program]->run();
}

void Embedder::start(std::vector<std::vector<TokenId>> inputs) {
  for (const auto& input : inputs)
    HONE_ASSERT(!input.empty() && std::ssize(input) <= options_.max_model_len, "an input of ", input.size(), " tokens");
  inputs_ = std::move(inputs);
  next_input_ = 0;
  next_token_ = 0;
  sum_.assign(static_cast<std::size_t>(hidden_size_), 0);
  embeddings_.clear();
}

// An input has its blocks until the step in which it ends. Only one input is ever under way between two steps; it keeps
// its place, and the others of the next step come after it or, if it is far behind, before it.
std::vector<Embedder::Chunk> Embedder::next_chunks() {
  std::vector<Chunk> chunks;
  std::int64_t left = options_.max_batch_tokens;
  std::int64_t free_block = 0;
  while (next_input_ < inputs_.size() && left > 0 && std::ssize(chunks) < kMostSequences) {
    const bool continues = next_token_ > 0;
    const std::int64_t first = continues ? first_block_ : free_block;
    if (first + blocks_of(next_input_) > layout_.num_blocks) break;
    const std::int64_t count = std::min(left, length(next_input_) - next_token_);
    chunks.push_back(
        {.input = next_input_, .begin = next_token_, .count = count, .first_block = static_cast<BlockId>(first)});
    left -= count;
    first_block_ = first;
    free_block = first + blocks_of(next_input_);
    next_token_ += count;
    if (next_token_ == length(next_input_)) {
      ++next_input_;
      next_token_ = 0;
    }
  }
  return chunks;
}

std::size_t Embedder::feed(Executable& program, std::span<const Chunk> chunks) const {
  const ValueId cu_id = program.program().find(Role::kInput, "cu_seqlens");
  const auto cu_entries = static_cast<std::size_t>(program.program().value(cu_id).type.elements());
  // tokens, positions, slots: [tokens]; starts: [chunks]; table: [chunks, max_blocks]; rows: [rows to read].
  std::vector<std::int32_t> tokens, positions, slots, starts, cu_seqlens{0}, table, rows;
  for (const Chunk& chunk : chunks) {
    starts.push_back(static_cast<std::int32_t>(chunk.begin));
    for (std::int64_t i = chunk.begin; i < chunk.begin + chunk.count; ++i) {
      if (options_.pooling == Pooling::kMean || i + 1 == length(chunk.input))
        rows.push_back(static_cast<std::int32_t>(tokens.size()));
      tokens.push_back(inputs_[chunk.input][static_cast<std::size_t>(i)]);
      positions.push_back(static_cast<std::int32_t>(i));
      slots.push_back(static_cast<std::int32_t>(chunk.first_block * layout_.block_size + i));
    }
    cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
    for (std::int64_t block = 0; block < blocks_of(chunk.input); ++block)
      table.push_back(static_cast<std::int32_t>(chunk.first_block + block));
    table.resize(starts.size() * static_cast<std::size_t>(layout_.max_blocks), 0);
  }
  const std::size_t read = rows.size();
  // A step in which no input ends gives a row that is not read. Without tokens there is none.
  if (rows.empty() && !tokens.empty()) rows.push_back(0);
  cu_seqlens.resize(cu_entries, cu_seqlens.back());
  program.set_count(Count::tokens, std::ssize(tokens));
  program.set_count(Count::sequences, std::ssize(starts));
  program.set_count(Count::samples, std::ssize(rows));
  program.set<std::int32_t>("tokens", tokens);
  program.set<std::int32_t>("positions", positions);
  program.set<std::int32_t>("slots", slots);
  program.set<std::int32_t>("starts", starts);
  program.set<std::int32_t>("cu_seqlens", cu_seqlens);
  program.set<std::int32_t>("block_table", table);
  program.set<std::int32_t>("rows", rows);
  if (options_.adapter_slots) program.set<std::int32_t>(kAdapterSlots, std::vector<std::int32_t>(tokens.size(), -1));
  return read;
}

void Embedder::pool(std::span<const Chunk> chunks, std::span<const float> rows) {
  const auto size = static_cast<std::size_t>(hidden_size_);
  for (const Chunk& chunk : chunks) {
    const std::int64_t count = options_.pooling == Pooling::kMean ? chunk.count : is_last(chunk) ? 1 : 0;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::size_t column = 0; column < size; ++column) sum_[column] += static_cast<double>(rows[column]);
      rows = rows.subspan(size);
    }
    if (!is_last(chunk)) continue;
    embeddings_.push_back(normalized(sum_));  // a mean and a sum have the same direction
    std::ranges::fill(sum_, 0);
  }
}

bool Embedder::step() {
  const std::vector<Chunk> chunks = next_chunks();
  if (chunks.empty()) return false;
  std::int64_t tokens = 0;
  for (const Chunk& chunk : chunks) tokens += chunk.count;
  const auto number = static_cast<std::size_t>(std::ranges::lower_bound(capacities_, tokens) - capacities_.begin());
  Executable& program = *programs_[number];
  const std::size_t read = feed(program, chunks);
  run(number);
  std::vector<float> rows(read * static_cast<std::size_t>(hidden_size_));
  if (read > 0) program.get<float>("hidden", rows);
  if (group_ != nullptr) {
    program.device().synchronize();
    check_operations();  // before the rows are used
  }
  pool(chunks, rows);
  if (next_input_ < inputs_.size()) return true;
  if (group_ != nullptr) group_->settle();
  return false;
}

std::vector<std::vector<float>> Embedder::take() {
  HONE_ASSERT(embeddings_.size() == inputs_.size(), "embeddings are taken before they are computed");
  inputs_.clear();
  next_input_ = 0;
  return std::exchange(embeddings_, {});
}

std::vector<std::vector<float>> Embedder::embed(std::vector<std::vector<TokenId>> inputs) {
  start(std::move(inputs));
  while (step()) continue;
  return take();
}

}  // namespace hone
