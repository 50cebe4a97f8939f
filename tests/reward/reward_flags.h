// Options of rewards with keys set by command-line flags.
#pragma once

#include <string>
#include <vector>

#include "reward/reward.h"
#include "support/option_flags.h"

namespace hone::test {

[[nodiscard]] inline RewardOptions with_keys(const std::vector<std::string>& flags, bool think_prefilled = false) {
  return {.keys = with_flags(reward_keys(), flags),
          .think_prefilled = think_prefilled,
          .sandbox = SandboxMode::kNamespaces,
          .hidden = {},
          .rows = {}};
}

}  // namespace hone::test
