// hone bench train: full training steps on random tokens.
#pragma once

#include <span>
#include <string>

namespace hone {

int bench_train(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_train_keys();  // as help shows them

}  // namespace hone
