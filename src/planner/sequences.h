// The sequences of a run whose data is unknown: all are as long as its options allow.
#pragma once

#include <cstdint>

#include "data/micro_batches.h"
#include "train/options.h"

namespace hone {

// Returns the steps of `batch_size` x `batches` sequences of the same size.
[[nodiscard]] StepSizes equal_steps(std::int64_t batch_size, std::int64_t batches, BatchLimits sequence);

// Returns the largest number of documents assumed in a packed sequence. Documents of fewer than 16 tokens are rare, and
// a larger number costs only a few bytes of inputs.
[[nodiscard]] std::int64_t documents_in(std::int64_t length);

// Returns the micro-batches of a step of one rank whose sequences have this many tokens each: with
// max_tokens_per_micro_batch as many as it cuts a step into, otherwise gradient_accumulation_steps.
[[nodiscard]] std::int64_t micro_batches_of_step(const TrainingOptions& options, std::int64_t sequence_tokens);

}  // namespace hone
