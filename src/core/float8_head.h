// Heads of the KV cache in FP8: the key or the value of one token and key head, as numbers in float8_e4m3fn with one
// scale, a power of two. A head is e4m3 x scale, which is exact in bf16 and in f32, so that what is read does not
// depend on the type that computes with it.
//
// The scale is the least with which no number of the head is above 448 (e4m3_scale_bits() of core/float8.h). It depends
// on the head alone: no calibration, and no other token changes a bit. A byte holds it as the exponent of f32: byte e
// is 2^(e - 127). A head with a number that is not finite has the byte 255, which stands for infinity, and zeros as
// numbers, so that all that is read from it is NaN. Magnitudes from 1.9375 x 2^127 on are rounded to infinity.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace hone {

// Writes `count` numbers as e4m3 and returns the byte of their scale. Instantiated for float and BFloat16.
template <class T>
[[nodiscard]] std::uint8_t quantize_head(const T* values, std::int64_t count, std::uint8_t* bytes);

// out[i] = e4m3 x scale.
template <class T>
void dequantize_head(const std::uint8_t* bytes, std::uint8_t scale, std::int64_t count, T* out);

}  // namespace hone
