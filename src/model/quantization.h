// The choice of FP8 weights and activations for generation.
#pragma once

#include <cstdint>

#include "core/options.h"

namespace hone {

enum class Quantization : std::uint8_t {
  kAutomatic,  // as the folder has them: FP8 weights are kept, others are bf16 or f32
  kFp8,        // the weights of linear layers in FP8, activations in bf16
  kW8a8Fp8,    // both operands of linear layers in FP8, as in training with fp8: true (passes/fp8.h)
  kNone,       // bf16 or f32, converted from FP8 if the folder has that
};
template <>
inline constexpr EnumTable kEnumTable<Quantization>{.names = "auto|fp8|w8a8_fp8|none"};

inline constexpr const char* kQuantizationHelp =
    "Weights of linear layers: fp8 (e4m3 with a scale for each 128 x 128), w8a8_fp8 (their inputs too, with a "
    "scale for 128 numbers of a row), none (bfloat16 or float32); auto: as stored";

}  // namespace hone
