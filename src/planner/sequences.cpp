#include "planner/sequences.h"

#include <algorithm>
#include <vector>

namespace hone {

StepSizes equal_steps(std::int64_t batch_size, std::int64_t batches, BatchLimits sequence) {
  constexpr std::int64_t kMostListed = 1 << 16;
  const std::int64_t step = batch_size * batches;
  const std::int64_t listed = step <= kMostListed ? step : std::min(batch_size, kMostListed);
  return {.batch = {sequence.tokens * batch_size, sequence.documents * batch_size},
          .longest = sequence,
          .batches_per_step = batches,
          .steps = {std::vector(static_cast<std::size_t>(listed), sequence)}};
}

std::int64_t documents_in(std::int64_t length) {
  constexpr std::int64_t kShortDocument = 16;
  return std::max<std::int64_t>(length / kShortDocument, 1);
}

std::int64_t micro_batches_of_step(const TrainingOptions& options, std::int64_t sequence_tokens) {
  const std::int64_t size = options.per_device_train_batch_size;
  const std::int64_t most = options.max_tokens_per_micro_batch.value_or(size * sequence_tokens);
  const std::int64_t at_a_time = std::max<std::int64_t>(most / sequence_tokens, 1);
  return (size * options.gradient_accumulation_steps + at_a_time - 1) / at_a_time;
}

}  // namespace hone
