#include "engine/generation_program.h"

#include <algorithm>
#include <utility>

#include "compile/compiler.h"
#include "engine/engine_options.h"
#include "ops/adjust_logits/adjust_logits.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/sample/sample.h"
#include "ops/token_feedback/token_feedback.h"
#include "ops/top_logprobs/top_logprobs.h"

namespace hone {

namespace {

// Logits [samples, vocab] from which tokens are drawn. The log-probability of a token is that of the logits before
// adjustment. Each request has room for an entry for each of its tokens and of those that it names, and each token of a
// prompt for its own.
Tensor adjusted_logits(Program& program, Tensor logits, Tensor last_sampled, const GenerationProgramOptions& options) {
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

}  // namespace

Program trace_generation(const Model& model, const GenerationProgramOptions& options) {
  Program program;
  PagedBatch batch(program, options.capacity, options.layout, DType::kF32);
  const Tensor last_sampled = program.state("sampled_tokens", {DType::kI32, {options.max_samples}});
  batch.tokens = token_feedback(batch.tokens, last_sampled);
  WeightBinder weights(program, model.traced_weights(), false);
  const Tensor hidden = model.forward(weights, batch);
  {
    const Scope scope(program, "head");
    const Dim samples(options.capacity.sequences, Count::samples);
    const Tensor rows = program.input("sample_rows", {DType::kI32, {samples}});
    const Tensor parameters = program.input("parameters", {DType::kF32, {samples, kSampleParameters}});
    const Tensor keys = program.input("keys", {DType::kI64, {samples, 2}});
    const Tensor logits = linear(gather_rows(hidden, rows), weights(model.head()), {}, {.f32_output = true});
    const Tensor adjusted = options.adjust_logits ? adjusted_logits(program, logits, last_sampled, options) : Tensor();
    const Sampled sampled = sample(logits, parameters, keys, adjusted);
    token_feedback_store(sampled.token, last_sampled);
    program.output("token", sampled.token);
    program.output("logp", sampled.logp);
    if (options.max_logprobs > 0) {
      const Tensor counts = program.input("top_counts", {DType::kI32, {samples}});
      const TopLogprobs top = top_logprobs(logits, parameters, counts, options.max_logprobs);
      program.output("top_ids", top.ids);
      program.output("top_logps", top.logps);
    }
  }
  const Compiler compiler({.dtype = options.dtype});
  return compiler.inference(model.adapted(std::move(program), {}));
}

}  // namespace hone
