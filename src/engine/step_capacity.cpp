#include "engine/step_capacity.h"

#include <algorithm>

#include "core/error.h"

namespace hone {
namespace {

// A GPU multiplies up to 128 rows in about the time in which it reads the weights, in tiles of powers of two
// (ops/linear/few_rows_tiles.h). More rows take time in proportion.
constexpr std::int64_t kFewestTokens = 8, kReadRows = 128;
constexpr std::int64_t kFewestPromptTokens = 16;  // of a step whose prompts are worth a separate kernel on a GPU

// Tokens of the programs, ascending. The common step has `decoded` tokens and a program without padding.
std::vector<std::int64_t> token_capacities(std::int64_t most, std::int64_t decoded, DeviceKind device) {
  std::vector<std::int64_t> tokens{most};
  const auto add = [&](std::int64_t size) {
    if (size < most) tokens.push_back(size);
  };
  for (std::int64_t size = kFewestTokens; size < most; size *= 2) {
    add(size);
    if (device == DeviceKind::kCpu || size < kReadRows) continue;
    for (std::int64_t quarters = 5; quarters < 8; ++quarters) add(size / 4 * quarters);
  }
  add(decoded);
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  return tokens;
}

}  // namespace

// A CPU computes the rows that there are, so that the size of a program matters little. A GPU multiplies all rows of a
// capacity.
std::vector<StepCapacity> engine_capacities(const EngineOptions& options, DeviceKind device) {
  const std::int64_t drawn = options.max_num_seqs * (1 + options.num_speculative_tokens);
  const std::int64_t decoded = drawn < 8 ? drawn : (drawn + 7) / 8 * 8;
  std::vector<StepCapacity> capacities;
  for (const std::int64_t tokens : token_capacities(options.max_batch_tokens, decoded, device)) {
    const auto add = [&](std::int64_t requests) {
      capacities.push_back({tokens, requests, std::min(tokens, max_samples(options))});
    };
    const bool decodes = tokens <= decoded;
    // A request with several tokens leaves room for one request less than there are tokens.
    if (!decodes || (device != DeviceKind::kCpu && tokens >= kFewestPromptTokens))
      add(std::min(tokens - 1, options.max_num_seqs));
    if (decodes) add(tokens);
  }
  return capacities;
}

std::size_t capacity_of_step(std::span<const StepCapacity> capacities, std::int64_t tokens, bool computes_prompts) {
  auto found = std::ranges::lower_bound(capacities, tokens, {}, &StepCapacity::tokens);
  HONE_ASSERT(found != capacities.end(), "no program holds ", tokens, " tokens");
  const auto next = std::ranges::next(found);
  if (!computes_prompts && next != capacities.end() && next->tokens == found->tokens) found = next;
  return static_cast<std::size_t>(found - capacities.begin());
}

}  // namespace hone
