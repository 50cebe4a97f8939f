// Shapes of real models, to be measured with random weights.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// config.json as the model's authors publish it, as far as shapes go. Throws Error with the names that there are.
[[nodiscard]] std::string bench_model_config(std::string_view name);

}  // namespace hone
