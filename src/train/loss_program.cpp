#include "train/loss_program.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "ops/dropout/dropout.h"
#include "ops/fill/fill.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/policy_term/policy_term.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "passes/context_parallel.h"
#include "passes/sum_gradients.h"
#include "program/context_builder.h"

namespace hone {
namespace {

// Returns -log p or, if dynamic, -p log p with the factor p held constant: the CISPO term with old log-probability 0
// and advantage 1.
Tensor term_of(Tensor logp, bool dynamic) {
  if (!dynamic) return scale(logp, -1.0);
  Program& program = logp.program();
  return policy_term(logp, fill(program, logp.type(), 0.0), {}, fill(program, logp.type(), 1.0),
                     {.kind = "cispo", .epsilon_high = 1.0})
      .term;
}

// The program of a loss before any pass.
Program trace_nll(const Model& model, const LossProgramOptions& options, bool trainable) {
  LossTrace trace;
  trace_log_probabilities(trace, model, options.capacity,
                          {.trainable = trainable, .learns = true, .dropout = trainable});
  Program& program = trace.program;
  const Tensor weights = program.input("loss_weights", {DType::kF32, {{options.capacity.tokens, Count::tokens}}});
  const Tensor counted = program.input("counted", weights.type());
  const Tensor loss = weighted_sum(term_of(trace.logp, options.dynamic), weights);
  program.output("loss", with_model_losses(loss, trace.losses, weights));
  program.output("entropy", weighted_sum(trace.entropy, counted));
  program.output("hits", weighted_sum(trace.hit, counted));
  output_statistics(program, trace.statistics);
  program = model.adapted(std::move(program), {.trainable = trainable, .dropout = trainable});
  return options.context_size > 1 ? divide_tokens(program, options.context_size) : std::move(program);
}

}  // namespace

void trace_log_probabilities(LossTrace& trace, const Model& model, const Capacity& capacity,
                             const LogProbabilityOptions& options) {
  DocumentBatch batch(trace.program, capacity);
  batch.learns = options.learns;
  batch.training = options.dropout;
  WeightBinder weights(trace.program, model.traced_weights(), options.trainable);
  const Tensor hidden = model.forward(weights, batch);
  const Scope scope(trace.program, "head");
  const Tensor targets = batch.targets();
  const LinearLogprobs head =
      linear_logprobs(hidden, weights(model.head()), targets, {.temperature = options.temperature});
  trace.logp = head.logp;
  trace.entropy = head.entropy;
  trace.hit = head.hit;
  trace.losses = batch.losses();
  trace.statistics = batch.statistics();
}

Program trace_training(const Model& model, const LossProgramOptions& options) {
  return Compiler(options.compile).training(trace_nll(model, options, true), "loss");
}
Program trace_training_forward(const Model& model, const LossProgramOptions& options) {
  return Compiler(options.compile).inference(trace_nll(model, options, true));
}
Program trace_evaluation(const Model& model, const LossProgramOptions& options) {
  return Compiler(options.compile).inference(trace_nll(model, options, false));
}

double BatchWork::flops(const HostBatch& batch) const {
  double pairs = 0;
  for (const std::int32_t position : batch.positions) pairs += position + 1.0;
  return per_token * static_cast<double>(batch.token_count()) + per_pair * pairs;
}

void add_summing_programs(Workspace& workspace, const ProgramUse& use, const ExpertGradients& experts) {
  for (const std::string& name : workspace.program_names()) {
    if (!name.starts_with(kTrainingProgram)) continue;
    const std::string_view capacity = std::string_view(name).substr(std::string_view(kTrainingProgram).size());
    workspace.add(text_of(kSummingProgram, capacity), sum_gradients(workspace.program(name), experts), use);
  }
}

void add_quantization(Workspace& workspace, const ProgramUse& use) {
  Program program = quantization_of(workspace.program(kTrainingProgram));
  if (!program.nodes().empty()) workspace.add(kQuantizationProgram, std::move(program), use);
}

BatchWork work_of(const Program& program, std::int64_t tokens, int context_size) {
  const Cost cost = program.cost();
  const std::int64_t rows = std::max<std::int64_t>((tokens + context_size - 1) / context_size, 1);  // of this rank
  const auto count = static_cast<double>(rows);
  const double pairs = count * (count * context_size + 1) / 2;
  return {.per_token = (cost.flops - cost.pair_flops) / count, .per_pair = cost.pair_flops / pairs};
}

namespace {

bool has_input(const Executable& executable, std::string_view name) {
  return executable.program().find(Role::kInput, name) != kNoValue;
}

// Sets an input, which stages of a pipeline may lack.
template <class T>
void set_if_read(Executable& executable, std::string_view name, const std::vector<T>& values) {
  if (has_input(executable, name)) executable.set<T>(name, values);
}

// Sets an input, which stages of a pipeline may lack, to values that are followed by `rest` up to its size.
void set_filled(Executable& executable, std::string_view name, std::vector<std::int32_t> values, std::int32_t rest) {
  const ValueId id = executable.program().find(Role::kInput, name);
  if (id == kNoValue) return;
  const auto entries = static_cast<std::size_t>(executable.program().value(id).type.elements());
  HONE_ASSERT(values.size() <= entries, values.size(), " entries of ", name, ", room for ", entries);
  values.resize(entries, rest);
  executable.set<std::int32_t>(name, values);
}

// Sets ContextInputs of a program whose tokens are divided. An empty micro-batch need not be a share.
void feed_context(Executable& executable, const HostBatch& batch) {
  HONE_ASSERT(batch.context || batch.token_count() == 0, "a whole micro-batch for a program of divided tokens");
  const ContextShare share = batch.context.value_or(ContextShare{});
  const std::int64_t capacity = SizedExecutables::capacity_of(executable);
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> used(static_cast<std::size_t>(share.ranks), 0);  // [ranks]: rows so far
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> bounds{0};
  std::vector<std::int32_t> starts;
  std::vector<std::int32_t> keys;
  std::vector<std::int32_t> document_pieces{0};
  for (const ContextPiece& piece : share.pieces) {
    std::int64_t& row = used[static_cast<std::size_t>(piece.rank)];
    HONE_ASSERT(row + piece.tokens <= capacity, row + piece.tokens, " tokens of rank ", piece.rank, ", room for ",
                capacity);
    rows.resize(std::max(rows.size(), static_cast<std::size_t>(piece.token + piece.tokens)), -1);
    for (std::int32_t token = piece.token; token < piece.token + piece.tokens; ++token) {
      rows[static_cast<std::size_t>(token)] = static_cast<std::int32_t>(piece.rank * capacity + row++);
      if (piece.rank == share.rank) tokens.push_back(token);
    }
    if (piece.rank != share.rank) continue;
    document_pieces.resize(static_cast<std::size_t>(piece.document) + 1, static_cast<std::int32_t>(starts.size()));
    bounds.push_back(static_cast<std::int32_t>(row));
    starts.push_back(piece.start);
    keys.push_back(piece.token - piece.start);
  }
  const auto pieces = static_cast<std::int32_t>(starts.size());
  const std::int32_t end = bounds.back();
  if (const ValueId id = executable.program().find(Role::kInput, kContextDocumentBounds); id != kNoValue) {
    std::vector<std::int32_t> document_bounds;  // [documents + 1]
    const auto entries = static_cast<std::size_t>(executable.program().value(id).type.elements());
    for (std::size_t d = 0; d < entries; ++d) {
      const std::int32_t piece = d < document_pieces.size() ? document_pieces[d] : pieces;
      document_bounds.push_back(bounds[static_cast<std::size_t>(piece)]);
    }
    executable.set<std::int32_t>(kContextDocumentBounds, document_bounds);
  }
  set_filled(executable, kContextRows, std::move(rows), -1);
  set_if_read(executable, kContextTokens, tokens);
  set_filled(executable, kContextPieceBounds, std::move(bounds), end);
  set_filled(executable, kContextPieceStarts, std::move(starts), 0);
  set_filled(executable, kContextPieceKeys, std::move(keys), 0);
  set_filled(executable, kContextDocumentPieces, std::move(document_pieces), pieces);
}

}  // namespace

void feed(Executable& executable, const HostBatch& batch) {
  executable.set_count(Count::tokens, batch.token_count());
  set_if_read(executable, "tokens", batch.tokens);
  set_if_read(executable, "positions", batch.positions);
  set_filled(executable, "cu_seqlens", batch.cu_seqlens, batch.cu_seqlens.back());  // the last end is repeated
  if (has_input(executable, kContextRows)) feed_context(executable, batch);
}

void LossSums::add(const LossReading& reading) {
  loss += static_cast<double>(reading.loss);
  entropy += static_cast<double>(reading.entropy);
  hits += static_cast<double>(reading.hits);
  target_tokens += static_cast<double>(reading.target_tokens);
  padding.tokens += static_cast<double>(reading.tokens);
  padding.rows += static_cast<double>(reading.rows);
  figures.add(reading.figures, reading.tokens);
}

LossLaunches::~LossLaunches() {
  if (pending_downloads_.empty()) return;
  try {
    programs_.largest().device().synchronize();
  } catch (const Error&) {
    return;  // the next use of the device reports the error again
  }
}

void LossLaunches::launch(const HostBatch& batch, double weight, std::int64_t room) {
  launch_in(programs_.holding(std::max(batch.token_count(), room)), batch, weight,
            static_cast<std::int64_t>(pending_downloads_.size()));
}

void LossLaunches::launch_in(Executable& executable, const HostBatch& batch, double weight, std::int64_t index) {
  const auto tokens = static_cast<std::size_t>(batch.token_count());
  std::vector<float> weights(tokens);  // input "loss_weights"
  std::vector<float> counted(tokens);  // 1 for tokens with a loss
  // Targets without weight are masked, so that no logits are computed for them.
  std::vector<TokenId> targets = batch.targets;
  for (std::size_t t = 0; t < tokens; ++t) {
    weights[t] = batch.loss_weights[t] * static_cast<float>(weight);
    counted[t] = batch.loss_weights[t] != 0 ? 1.0f : 0.0f;
    if (batch.loss_weights[t] == 0) targets[t] = -1;
  }
  feed(executable, batch);
  set_if_read(executable, "targets", targets);
  set_if_read(executable, "loss_weights", weights);
  set_if_read(executable, "counted", counted);
  if (has_input(executable, kDropoutInput)) {
    executable.set<std::int32_t>(kDropoutInput, dropout_draw(seed_, step_, first_ + index));
  }
  executable.run();
  if (!has_loss(executable.program())) return;
  HONE_ASSERT(pending_downloads_.size() < pending_downloads_.capacity(), "more launches than the ",
              pending_downloads_.capacity(), " announced");
  LossReading& reading = pending_downloads_.emplace_back();
  reading.target_tokens = batch.target_tokens;
  reading.tokens = batch.token_count();
  reading.rows = SizedExecutables::capacity_of(executable);
  executable.get_later<float>("loss", {&reading.loss, 1});
  executable.get_later<float>("entropy", {&reading.entropy, 1});
  executable.get_later<float>("hits", {&reading.hits, 1});
  reading.figures = figures_.read_later(executable);
}

bool LossLaunches::has_loss(const Program& program) {
  return std::ranges::find(program.outputs(), "loss", &Output::name) != program.outputs().end();
}

void LossLaunches::add_to(LossSums& sums) {
  programs_.largest().device().synchronize();
  for (const LossReading& reading : pending_downloads_) sums.add(reading);
}

LossSums LossLaunches::sums() {
  LossSums sums;
  sums.figures = figures_;
  add_to(sums);
  return sums;
}

LossSums run_loss(Executable& executable, const HostBatch& batch, double weight) {
  LossLaunches launches(executable, 1);
  launches.launch(batch, weight);
  return launches.sums();
}

}  // namespace hone
