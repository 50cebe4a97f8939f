#include "engine/generation_program.h"

#include <algorithm>
#include <utility>

#include "compile/compiler.h"
#include "ops/adjust_logits/adjust_logits.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/sample/sample.h"
#include "ops/token_feedback/token_feedback.h"
#include "ops/top_logprobs/top_logprobs.h"

namespace hone {

namespace {

// Logits [samples, vocab] from which the tokens of samples are drawn that adjust them. The log-probability of a token
// is that of the logits before adjustment. Each request has room for an entry for each of its tokens and of those that
// it names, and each token of a prompt for its own.
AdjustedLogits adjusted_logits(Program& program, Tensor logits, Tensor last_sampled,
                               const GenerationProgramOptions& options) {
  const Dim samples = logits.shape()[0];
  const std::int64_t vocab = logits.shape()[1].size;
  const std::int64_t longest = options.layout.max_blocks * options.layout.block_size;
  const std::int64_t entries =
      std::min(samples.size, options.max_num_seqs) * std::min(vocab, longest + kMaxListedTokens) + samples.size;
  const Tensor parameters = program.input("adjustments", {DType::kF32, {samples, kAdjustmentParameters}});
  const Tensor unread = program.input("unread", {DType::kI32, {samples}});
  const Tensor offsets = program.input("entry_offsets", {DType::kI32, {samples.size + 1}});
  const Tensor ids = program.input("entry_ids", {DType::kI32, {entries}});
  const Tensor occurrences = program.input("entry_occurrences", {DType::kI32, {entries}});
  const Tensor biases = program.input("entry_biases", {DType::kF32, {entries}});
  const Tensor mask_rows = program.input("mask_rows", {DType::kI32, {samples}});
  const std::int64_t masks = std::min(samples.size, options.max_num_seqs);
  const Tensor mask_bits = program.input("masks", {DType::kI32, {masks, mask_row_size(vocab)}});
  return adjust_logits(logits, parameters, last_sampled, unread, offsets, ids, occurrences, biases, mask_rows,
                       mask_bits);
}

// Proposes the token after each drawn one.
Tensor draft_tokens(Program& program, const Model& model, WeightBinder& weights, Batch& batch, Tensor hidden,
                    Tensor drawn, Tensor rows, Tensor parameters) {
  const Tensor next = token_feedback(program.input("next_tokens", batch.tokens.type()), drawn);
  const Tensor further = model.predict_further(weights, batch, hidden, next);
  const Scope scope(program, "draft");
  const Tensor keys = program.input("draft_keys", {DType::kI64, {rows.shape()[0], 2}});
  const Tensor logits = linear(gather_rows(further, rows), weights(model.head()), {}, {.f32_output = true});
  return sample(logits, parameters, keys).token;
}

}  // namespace

Program trace_generation(const Model& model, const GenerationProgramOptions& options) {
  Program program;
  const StepCapacity& capacity = options.capacity;
  PagedBatch batch(program, {.tokens = capacity.tokens, .sequences = capacity.requests}, options.layout, DType::kF32);
  const Tensor last_sampled = program.state("sampled_tokens", {DType::kI32, {options.max_samples}});
  batch.tokens = token_feedback(batch.tokens, last_sampled);
  WeightBinder weights(program, model.traced_weights(), false);
  const Tensor hidden = model.forward(weights, batch);
  Tensor rows;
  Tensor parameters;
  Tensor drawn;
  {
    const Scope scope(program, "head");
    const Dim samples(capacity.samples, Count::samples);
    rows = program.input("sample_rows", {DType::kI32, {samples}});
    parameters = program.input("parameters", {DType::kF32, {samples, kSampleParameters}});
    const Tensor keys = program.input("keys", {DType::kI64, {samples, 2}});
    const Tensor logits = linear(gather_rows(hidden, rows), weights(model.head()), {}, {.f32_output = true});
    const AdjustedLogits adjusted =
        options.adjust_logits ? adjusted_logits(program, logits, last_sampled, options) : AdjustedLogits();
    const Sampled sampled = sample(logits, parameters, keys, adjusted.logits, adjusted.adjusted);
    drawn = sampled.token;
    token_feedback_store(drawn, last_sampled);
    program.output("token", drawn);
    program.output("logp", sampled.logp);
    if (options.max_logprobs > 0) {
      const Tensor counts = program.input("top_counts", {DType::kI32, {samples}});
      const TopLogprobs top = top_logprobs(logits, parameters, counts, {.most = options.max_logprobs});
      program.output("top_ids", top.ids);
      program.output("top_logps", top.logps);
    }
  }
  if (options.predicts_further) {
    program.output("draft", draft_tokens(program, model, weights, batch, hidden, drawn, rows, parameters));
  }
  const Compiler compiler({.dtype = options.dtype});
  return compiler.inference(model.adapted(std::move(program), {}));
}

}  // namespace hone
