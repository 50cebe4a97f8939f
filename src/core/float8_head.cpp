#include "core/float8_head.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include "core/float8.h"

namespace hone {
namespace {

// The bits in f32 of the largest magnitude. Magnitudes are ordered as their bits are; those of numbers that are not
// finite are the largest.
std::uint32_t largest_bits(const BFloat16* values, std::int64_t count) {
  return std::bit_cast<std::uint32_t>(largest_magnitude(values, count));
}
std::uint32_t largest_bits(const float* values, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU);
  return largest;
}

float scale_of(std::uint8_t byte) { return std::bit_cast<float>(std::uint32_t{byte} << 23); }

}  // namespace

template <class T>
std::uint8_t quantize_head(const T* values, std::int64_t count, std::uint8_t* bytes) {
  const auto byte = static_cast<std::uint8_t>(e4m3_scale_bits_of_f32(largest_bits(values, count)) >> 23);
  const float scale = scale_of(byte);
  if (std::isinf(scale)) {
    std::fill_n(bytes, count, std::uint8_t{0});
  } else {
    quantize_e4m3(values, scale, count, bytes);
  }
  return byte;
}

template <class T>
void dequantize_head(const std::uint8_t* bytes, std::uint8_t scale, std::int64_t count, T* out) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    dequantize_e4m3(bytes, scale_of(scale), count, out);
  } else {
    constexpr std::int64_t kPart = 64;
    std::array<BFloat16, kPart> part;
    for (std::int64_t done = 0; done < count; done += kPart) {
      const std::int64_t size = std::min(kPart, count - done);
      dequantize_e4m3(bytes + done, scale_of(scale), size, part.data());
      for (std::int64_t i = 0; i < size; ++i) out[done + i] = static_cast<float>(part[static_cast<std::size_t>(i)]);
    }
  }
}

template std::uint8_t quantize_head(const float*, std::int64_t, std::uint8_t*);
template std::uint8_t quantize_head(const BFloat16*, std::int64_t, std::uint8_t*);
template void dequantize_head(const std::uint8_t*, std::uint8_t, std::int64_t, float*);
template void dequantize_head(const std::uint8_t*, std::uint8_t, std::int64_t, BFloat16*);

}  // namespace hone
