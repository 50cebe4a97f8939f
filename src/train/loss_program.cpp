#include "train/loss_program.h"

#include <vector>

#include "core/error.h"
#include "ops/fill/fill.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "passes/fusion.h"
#include "passes/gradient.h"
#include "passes/precision.h"

namespace hone {
namespace {

Program trace_nll(const Model& model, const LossProgramOptions& options, bool trainable) {
  LossTrace trace;
  trace_log_probabilities(trace, model, options.capacity, trainable, 1.0);
  Program& program = trace.program;
  const Tensor weights = program.input("loss_weights", {DType::f32, {{options.capacity.tokens, Count::tokens}}});
  program.output("loss", weighted_sum(scale(trace.logp, -1.0), weights));
  program.output("entropy", trace.entropy);
  program.output("hit", trace.hit);
  return finish_loss(std::move(program), trainable ? "loss" : nullptr, options);
}

}  // namespace

void trace_log_probabilities(LossTrace& trace, const Model& model, const Capacity& capacity, bool trainable,
                             double temperature) {
  DocumentBatch batch(trace.program, capacity);
  WeightBinder weights(trace.program, model.weights(), trainable);
  const Tensor hidden = model.forward(weights, batch);
  const Scope scope(trace.program, "head");
  const Tensor targets = trace.program.input("targets", {DType::i32, {{capacity.tokens, Count::tokens}}});
  const LinearLogprobs head = linear_logprobs(hidden, weights(model.head()), targets, {.temperature = temperature});
  trace.logp = head.logp;
  trace.entropy = head.entropy;
  trace.hit = head.hit;
}

Program finish_loss(Program program, const char* loss, const LossProgramOptions& options) {
  program = fuse_forward(with_precision(program, options.dtype));
  if (loss == nullptr) return program;
  for (const Output& output : program.outputs()) {
    if (output.name != loss) continue;
    const Tensor value = program.tensor(output.value);
    const GradientSeed seed{value, fill(program, value.type(), 1.0)};
    append_gradients(program, {&seed, 1}, {}, options.gradients);
    return recompute(program, options.recompute, options.activation_budget, options.device);
  }
  throw Defect(text_of("the program has no output ", loss));
}

Program trace_training(const Model& model, const LossProgramOptions& options) {
  return trace_nll(model, options, true);
}
Program trace_evaluation(const Model& model, const LossProgramOptions& options) {
  return trace_nll(model, options, false);
}

void feed(Executable& executable, const HostBatch& batch) {
  executable.set_count(Count::tokens, batch.token_count());
  executable.set<std::int32_t>("tokens", batch.tokens);
  executable.set<std::int32_t>("positions", batch.positions);
  const ValueId id = executable.program().find(Role::input, "cu_seqlens");
  const auto entries = static_cast<std::size_t>(executable.program().value(id).type.elements());
  HONE_ASSERT(batch.cu_seqlens.size() <= entries, batch.document_count(), " documents, room for ", entries - 1);
  std::vector<std::int32_t> cu_seqlens = batch.cu_seqlens;
  cu_seqlens.resize(entries, cu_seqlens.back());
  executable.set<std::int32_t>("cu_seqlens", cu_seqlens);
}

void LossSums::add(const LossSums& other) {
  loss += other.loss;
  entropy += other.entropy;
  hits += other.hits;
  target_tokens += other.target_tokens;
}

LossSums run_loss(Executable& executable, const HostBatch& batch, double weight) {
  const auto tokens = static_cast<std::size_t>(batch.token_count());
  std::vector<float> values(tokens);
  for (std::size_t t = 0; t < tokens; ++t) values[t] = batch.loss_weights[t] * static_cast<float>(weight);
  // A target that does not count costs no row of logits.
  std::vector<TokenId> targets = batch.targets;
  for (std::size_t t = 0; t < tokens; ++t) {
    if (batch.loss_weights[t] == 0) targets[t] = -1;
  }
  feed(executable, batch);
  executable.set<std::int32_t>("targets", targets);
  executable.set<float>("loss_weights", values);
  executable.run();
  LossSums sums;
  float loss = 0;
  executable.get<float>("loss", {&loss, 1});
  sums.loss = loss;
  const auto masked_sum = [&](std::string_view name) {
    executable.get<float>(name, values);
    double sum = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      if (batch.loss_weights[t] != 0) sum += static_cast<double>(values[t]);
    }
    return sum;
  };
  sums.entropy = masked_sum("entropy");
  sums.hits = masked_sum("hit");
  sums.target_tokens = static_cast<double>(batch.target_tokens);
  return sums;
}

}  // namespace hone
