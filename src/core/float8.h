// FP8 weights: numbers in float8_e4m3fn, each block of which has a scale.
//
// A number of e4m3 has a sign, four bits of exponent (bias 7) and three of fraction: 448 is the largest, 2^-9 the
// smallest above 0, and the only bytes that are no number are 0x7F and 0xFF. A weight is
//
//   bf16(e4m3 x scale),
//
// the product in f32, rounded to bf16, both to nearest even. A scale that is a power of two makes it exact. This is
// the only meaning of FP8 weights in hone: a product by them has the bits of one by the bf16 weights.
// Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022); blocks of 128 x 128 as in DeepSeek-V3 (2024).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/block_scales.h"
#include "core/dtype.h"

namespace hone {

inline constexpr float kE4m3Max = 448.0F;
// Scales are 0 or within these bounds, so that neither a weight nor a product by 2^120 is subnormal or infinite.
inline constexpr float kLeastScale = 0x1p-100F;
inline constexpr float kMostScale = 0x1p7F;

// Returns the number that a byte stands for; NaN for 0x7F and 0xFF.
[[nodiscard]] float e4m3_value(std::uint8_t byte);
// Returns the byte of the nearest number, of two the one with an even fraction. |value| is at most 448.
[[nodiscard]] std::uint8_t e4m3_of(float value);
// Returns true if one of the bytes stands for no number.
[[nodiscard]] bool has_e4m3_nan(std::span<const std::uint8_t> bytes);

// Returns the scale for a block whose largest magnitude is `amax`: the least power of two with which no value is above
// 448, at least kLeastScale; 1 if amax is 0. `amax` is at most 448 x kMostScale.
[[nodiscard]] float e4m3_scale(float amax);

// Returns the bits in f32 of the scale of a block of bf16 values that is quantized while a model trains: as
// e4m3_scale(), for any finite magnitude, and NaN if a value of the block is not finite, so that what is computed from
// the block is not either. `magnitude` has the bits of the block's largest magnitude in bf16, which are ordered as the
// magnitudes.
[[nodiscard]] constexpr std::uint32_t e4m3_scale_bits(std::uint32_t magnitude) {
  constexpr std::uint32_t kInfinity = 0x7F80;
  constexpr std::uint32_t kOne = 127U << 23;
  constexpr std::uint32_t kLeastExponent = 127 - 100;  // of kLeastScale
  if (magnitude == 0) return kOne;
  if (magnitude >= kInfinity) return 0x7FC00000;
  // A fraction above that of 448 = 1.75 x 2^8 takes the next power of two; 31 carries exactly those.
  const std::uint32_t exponent = (magnitude + 31) >> 7;
  return (exponent > kLeastExponent + 8 ? exponent - 8 : kLeastExponent) << 23;
}

// The same of a magnitude in f32, of whose bits it is a function. It is rounded up to bf16, which has the bounds of
// scales, so that it stays on its side of each; finite magnitudes stay finite.
[[nodiscard]] constexpr std::uint32_t e4m3_scale_bits_of_f32(std::uint32_t magnitude) {
  constexpr std::uint32_t kInfinity = 0x7F800000;
  constexpr std::uint32_t kLargest = 0x7F7F;
  const std::uint32_t up = (magnitude + 0xFFFF) >> 16;
  return e4m3_scale_bits(magnitude >= kInfinity ? magnitude >> 16 : up < kLargest ? up : kLargest);
}

// out[i] = bf16(bytes[i] x scale).
void dequantize_e4m3(const std::uint8_t* bytes, float scale, std::int64_t count, BFloat16* out);
// bytes[i] = values[i] / scale as e4m3. The scale is that of e4m3_scale() or e4m3_scale_bits() for a block that has the
// values; the bytes are 0 if it is NaN.
void quantize_e4m3(const BFloat16* values, float scale, std::int64_t count, std::uint8_t* bytes);
void quantize_e4m3(const float* values, float scale, std::int64_t count, std::uint8_t* bytes);
// Returns the largest magnitude; infinity or NaN if one of the values is not finite.
[[nodiscard]] float largest_magnitude(const BFloat16* values, std::int64_t count);

// Quantizes a matrix [rows, columns] in blocks of 128 x 128 from its first element on, with the scales of e4m3_scale()
// [scale_blocks(rows), scale_blocks(columns)]. Returns false if a value is not finite or above 448 x kMostScale.
[[nodiscard]] bool quantize_e4m3_blocks(const BFloat16* values, std::int64_t rows, std::int64_t columns,
                                        std::uint8_t* bytes, float* scales);

// Writes `count` elements of a row as bf16, the first of which is in `column`. `scales` are those of the whole row.
void dequantize_e4m3_row(const std::uint8_t* bytes, const float* scales, std::int64_t column, std::int64_t count,
                         BFloat16* out);

}  // namespace hone
