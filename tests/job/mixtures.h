// Small models with mixtures of experts.
#pragma once

#include <memory>
#include <string>

#include "job/rank_losses.h"

namespace hone::test {

// Models of the families, with 4 or 8 experts, dense layers and shared experts.
[[nodiscard]] Configs mixtures();
[[nodiscard]] std::unique_ptr<Model> mixture_of(const std::string& family);

}  // namespace hone::test
