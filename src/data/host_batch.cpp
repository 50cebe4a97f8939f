#include "data/host_batch.h"

#include <limits>

#include "core/error.h"

namespace hone {

void append_document(HostBatch& batch, const ExampleView& example, std::int64_t begin, std::int64_t length,
                     LookAhead look_ahead) {
  const auto available = static_cast<std::int64_t>(example.tokens.size());
  HONE_ASSERT(begin >= 0 && length > 0 && begin + length <= available, begin, " + ", length, " of ", available);
  HONE_ASSERT(batch.token_count() + length <= std::numeric_limits<std::int32_t>::max(), batch.token_count() + length);
  const std::int64_t last_target = look_ahead == LookAhead::kYes ? available : begin + length;
  for (std::int64_t t = begin; t < begin + length; ++t) {
    const bool has_target = t + 1 < last_target;
    const auto next = static_cast<std::size_t>(t + 1);
    const bool learned = has_target && (example.is_target.empty() || example.is_target[next] != 0);
    batch.tokens.push_back(example.tokens[static_cast<std::size_t>(t)]);
    batch.targets.push_back(has_target ? example.tokens[next] : -1);
    batch.positions.push_back(static_cast<std::int32_t>(t - begin));
    batch.loss_weights.push_back(learned ? 1.0f : 0.0f);
    batch.target_tokens += learned ? 1 : 0;
  }
  batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.token_count()));
}

}  // namespace hone
