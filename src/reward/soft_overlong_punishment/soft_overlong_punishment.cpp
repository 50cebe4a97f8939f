// Reward soft_overlong_punishment of DAPO (arXiv 2503.14476, equation 13), as in open-r1. It is 0 up to
// max_completion_len - soft_punish_cache completion tokens, falls linearly to -1 at max_completion_len tokens and is -1
// beyond.
#include "core/error.h"
#include "reward/registry.h"

namespace hone {
namespace {

struct OverlongKeys {
  std::int64_t max_completion_len = 16384;
  std::int64_t soft_punish_cache = 4096;

  template <class Visitor>
  void fields(Visitor& v) {
    v("max_completion_len", max_completion_len, "soft_overlong_punishment: tokens at which it is -1", at_least(1));
    v("soft_punish_cache", soft_punish_cache, "soft_overlong_punishment: tokens over which it falls", at_least(1));
  }
};

}  // namespace

void register_soft_overlong_punishment(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<OverlongKeys>());
  registry.add("soft_overlong_punishment", "soft_overlong_punishment_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) {
                 const std::int64_t longest = options.keys.get<OverlongKeys>().max_completion_len;
                 const std::int64_t cache = options.keys.get<OverlongKeys>().soft_punish_cache;
                 if (cache > longest) {
                   throw Error("soft_punish_cache",
                               text_of(cache, " is not between 0 and max_completion_len ", longest));
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
