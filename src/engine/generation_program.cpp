#include "engine/generation_program.h"

#include <utility>

#include "compile/compiler.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/repetition_penalty/repetition_penalty.h"
#include "ops/sample/sample.h"
#include "ops/token_feedback/token_feedback.h"

namespace hone {

namespace {

// Logits [samples, vocab] with repetition penalties, from which tokens are drawn. The log-probability of a token is
// that of the unpenalized logits.
Tensor penalized_logits(Program& program, Tensor logits, const KvLayout& layout) {
  const Dim samples = logits.shape()[0];
  const Tensor penalties = program.input("penalties", {DType::kF32, {samples}});
  const Tensor offsets = program.input("occurred_offsets", {DType::kI32, {samples.size + 1}});
  const Tensor ids = program.input("occurred_ids", {DType::kI32, {layout.num_blocks * layout.block_size}});
  return repetition_penalty(logits, penalties, offsets, ids);
}

}  // namespace

Program trace_generation(const Model& model, const GenerationProgramOptions& options) {
  Program program;
  PagedBatch batch(program, options.capacity, options.layout, DType::kF32);
  const Tensor last_sampled = program.state("sampled_tokens", {DType::kI32, {options.max_num_seqs}});
  batch.tokens = token_feedback(batch.tokens, last_sampled);
  WeightBinder weights(program, model.weights(), false);
  const Tensor hidden = model.forward(weights, batch);
  {
    const Scope scope(program, "head");
    const Dim samples(options.capacity.sequences, Count::samples);
    const Tensor rows = program.input("sample_rows", {DType::kI32, {samples}});
    const Tensor parameters = program.input("parameters", {DType::kF32, {samples, kSampleParameters}});
    const Tensor keys = program.input("keys", {DType::kI64, {samples, 2}});
    const Tensor logits = linear(gather_rows(hidden, rows), weights(model.head()), {}, {.f32_output = true});
    const Tensor penalized = options.repetition_penalty ? penalized_logits(program, logits, options.layout) : Tensor();
    const Sampled sampled = sample(logits, parameters, keys, penalized);
    token_feedback_store(sampled.token, last_sampled);
    program.output("token", sampled.token);
    program.output("logp", sampled.logp);
  }
  const Compiler compiler({.dtype = options.dtype});
  return compiler.inference(model.adapted(std::move(program), {}));
}

}  // namespace hone
