// The program of one engine step.
#pragma once

#include "engine/step_capacity.h"
#include "model/model.h"
#include "program/program.h"

namespace hone {

struct GenerationProgramOptions {
  StepCapacity capacity;
  KvLayout layout;
  std::int64_t max_num_seqs = 0;  // requests that may have an entry for each of their tokens
  std::int64_t max_samples = 0;   // rows of the state that keeps the tokens of the last step
  DType dtype = DType::kF32;
  bool adjust_logits = false;     // adds the inputs of adjusted logits
  std::int64_t max_logprobs = 0;  // above 0: adds "top_counts", "top_ids" and "top_logps"
  bool predicts_further = false;  // adds "next_tokens", "draft_keys" and "draft"
};

// Traces and compiles a program that runs chunks of requests through the model with a paged KV cache and then samples
// one token for each row in "sample_rows". An input token may be token_of_sample() of a sample of the step before
// (ops/token_feedback), by any of the programs that share the states. Inputs: those of PagedBatch; "sample_rows" i32
// [samples] (rows of the batch); "parameters" f32 [samples, 4] and "keys" i64 [samples, 2] (ops/sample). With
// adjust_logits also "adjustments" f32 [samples, 4], "unread" i32 [samples], "entry_offsets" i32 [samples + 1], and
// "entry_ids" i32, "entry_occurrences" i32 and "entry_biases" f32 [entries], "mask_rows" i32 [samples] and "masks" i32
// [requests, words] (ops/adjust_logits). With max_logprobs also "top_counts" i32 [samples]. Outputs: "token" i32
// [samples] and "logp" f32 [samples], the log-probability of the token; with max_logprobs "top_ids" i32 and "top_logps"
// f32 [samples, max_logprobs] (ops/top_logprobs). With predicts_further the model's layer for multi-token prediction
// runs after the tokens are drawn. Inputs "next_tokens" i32 [tokens], the token that follows each row, which may be
// token_of_sample() of a sample of the same step, and "draft_keys" i64 [samples, 2]; output "draft" i32 [samples], a
// proposal for the token after the one that the sample draws. It is drawn with the parameters and the random number of
// that token, so that equal logits propose what will be drawn.
[[nodiscard]] Program trace_generation(const Model& model, const GenerationProgramOptions& options);

}  // namespace hone
