// Models of the tests of pipelines whose stages are divided again.
#pragma once

#include "job/rank_losses.h"

namespace hone::test::products {

// Configurations of models with four layers: with a tied head, which the first and the last stage have both, with
// biases, and with a vocabulary that two ranks do not divide.
[[nodiscard]] Configs families();
// Mixtures of four layers with 4 experts each: with a loss that balances them, with a dense layer and shared experts.
[[nodiscard]] Configs mixtures();

}  // namespace hone::test::products
