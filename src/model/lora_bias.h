// PEFT's key `bias`.
#pragma once

#include <cstdint>

#include "core/options.h"

namespace hone {

// Which biases are trained beside the adapters, as copies: none, all of the model's, or those of the layers that have
// an adapter.
enum class LoraBias : std::uint8_t { none, all, lora_only };
template <>
inline constexpr EnumTable kEnumTable<LoraBias>{.names = "none|all|lora_only"};

}  // namespace hone
