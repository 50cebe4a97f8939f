// The values of PEFT's option `bias`.
#pragma once

#include <cstdint>

#include "core/options.h"

namespace hone {

// The biases that are trained in addition to the adapters, as copies: none, all of the model, or those of layers with
// an adapter.
enum class LoraBias : std::uint8_t { kNone, kAll, kLoraOnly };
template <>
inline constexpr EnumTable kEnumTable<LoraBias>{.names = "none|all|lora_only"};

}  // namespace hone
