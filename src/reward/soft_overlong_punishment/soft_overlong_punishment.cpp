// The soft overlong punishment of DAPO (arXiv 2503.14476, equation 13), as in open-r1: on completion tokens, 0 up to
// max_completion_len - soft_punish_cache, falling to -1 at max_completion_len, -1 beyond.
#include "core/error.h"
#include "reward/registry.h"

namespace hone {

void register_soft_overlong_punishment(RewardRegistry& registry) {
  registry.add("soft_overlong_punishment", "soft_overlong_punishment_reward", [](const RewardOptions& options) {
    const std::int64_t longest = options.max_completion_len;
    const std::int64_t cache = options.soft_punish_cache;
    if (longest <= 0) throw Error("max_completion_len", text_of(longest, " is not positive"));
    if (cache < 0 || cache > longest) {
      throw Error("soft_punish_cache", text_of(cache, " is not between 0 and max_completion_len ", longest));
    }
    return each([longest, cache](const RewardInput& input) -> std::optional<double> {
      const std::int64_t free = longest - cache;
      if (input.token_count <= free) return 0.0;
      if (input.token_count > longest) return -1.0;
      return static_cast<double>(free - input.token_count) / static_cast<double>(cache);
    });
  });
}

}  // namespace hone
