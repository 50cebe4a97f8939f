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

void append_batch(HostBatch& batch, const HostBatch& more) {
  HONE_ASSERT(batch.token_count() + more.token_count() <= std::numeric_limits<std::int32_t>::max(),
              batch.token_count() + more.token_count());
  const std::int32_t before = batch.cu_seqlens.back();
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(batch.tokens, more.tokens);
  append(batch.targets, more.targets);
  append(batch.positions, more.positions);
  append(batch.loss_weights, more.loss_weights);
  for (std::size_t d = 1; d < more.cu_seqlens.size(); ++d) batch.cu_seqlens.push_back(before + more.cu_seqlens[d]);
  batch.target_tokens += more.target_tokens;
}

HostBatch documents_of(const HostBatch& batch, std::size_t begin, std::size_t end) {
  HONE_ASSERT(begin <= end && end < batch.cu_seqlens.size(), begin, " to ", end, " of ", batch.document_count());
  const std::int32_t first = batch.cu_seqlens[begin];
  const std::int32_t last = batch.cu_seqlens[end];
  const auto part = [&](const auto& of) { return std::vector(of.begin() + first, of.begin() + last); };
  HostBatch result{.tokens = part(batch.tokens),
                   .targets = part(batch.targets),
                   .positions = part(batch.positions),
                   .loss_weights = part(batch.loss_weights)};
  for (std::size_t d = begin + 1; d <= end; ++d) result.cu_seqlens.push_back(batch.cu_seqlens[d] - first);
  for (const float weight : result.loss_weights) result.target_tokens += weight != 0 ? 1 : 0;
  return result;
}

}  // namespace hone
