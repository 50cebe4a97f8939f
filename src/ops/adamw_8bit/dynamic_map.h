// 8-bit quantization of optimizer moments: the dynamic map of Dettmers, "8-bit approximations for parallelism in deep
// learning" (2015), in blocks as in Dettmers et al., "8-bit optimizers via block-wise quantization" (2021) and
// bitsandbytes. A block's scale is its largest magnitude; an element is stored as the code of element / scale.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace hone {

inline constexpr std::int64_t kStateBlock = 256;  // elements that share a scale

// Quantization levels, ascending magnitudes from 0 to 1: 0; the middles of kFirst equal parts of [1e-7, 1e-6], of twice
// as many parts of [1e-6, 1e-5], and so on up to [0.1, 1]; and 1.
template <int kFirst>
struct DynamicMap {
  static constexpr int kDecades = 7;
  static constexpr int kSize = 127 * kFirst + 2;
  // The nearest level is found through buckets of floats: 2^kMantissa buckets for each of the kOctaves octaves below 1.
  static constexpr int kOctaves = 23;
  static constexpr int kMantissa = kFirst == 1 ? 6 : 7;
  static constexpr int kBuckets = (kOctaves << kMantissa) + 1;

  std::array<float, kSize> values{};
  std::array<float, kSize> middles{};           // between a level and the next; infinity after the last one
  std::array<std::uint8_t, kBuckets> lowest{};  // the level nearest to a bucket's start; at its end at most one more

  constexpr DynamicMap() {
    double decade = 1e-6;  // upper end of the decade
    std::size_t at = 1;
    for (int i = 0; i < kDecades; ++i, decade *= 10) {
      const int parts = kFirst << i;
      for (int part = 0; part < parts; ++part) {
        values[at++] = static_cast<float>(decade * (0.1 + 0.9 * (part + 0.5) / parts));
      }
    }
    values[at] = 1.0f;
    for (std::size_t i = 0; i + 1 < kSize; ++i) middles[i] = (values[i] + values[i + 1]) * 0.5f;
    middles[kSize - 1] = std::numeric_limits<float>::infinity();
    std::uint8_t index = 0;
    for (std::size_t bucket = 1; bucket < kBuckets; ++bucket) {
      while (middles[index] < start_of(bucket)) ++index;
      lowest[bucket] = index;
    }
  }

  // Number of a magnitude's bucket.
  [[nodiscard]] static constexpr int bucket_of(float magnitude) {
    const auto place = static_cast<int>(std::bit_cast<std::uint32_t>(magnitude) >> (23 - kMantissa));
    const int bucket = place - ((127 - kOctaves) << kMantissa);
    return bucket < 0 ? 0 : bucket < kBuckets ? bucket : kBuckets - 1;  // std::clamp's assertion traps in device code
  }
  // Index of the nearest level, and the lower of two that are equally near. A NaN gives some index.
  [[nodiscard]] constexpr int nearest(float magnitude) const {
    const int index = lowest[static_cast<std::size_t>(bucket_of(magnitude))];
    return index + (magnitude > middles[static_cast<std::size_t>(index)] ? 1 : 0);
  }

  // Returns true if no bucket holds two middles, as `nearest` requires.
  [[nodiscard]] constexpr bool has_one_middle_per_bucket() const {
    for (std::size_t bucket = 0; bucket + 1 < kBuckets; ++bucket) {
      const auto next = static_cast<std::size_t>(lowest[bucket]) + 1;
      if (next < kSize && middles[next] < start_of(bucket + 1)) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] static constexpr float start_of(std::size_t bucket) {
    const auto place = static_cast<std::uint32_t>(bucket) + ((127u - kOctaves) << kMantissa);
    return std::bit_cast<float>(place << (23 - kMantissa));
  }
};

inline constexpr DynamicMap<1> kSignedMap;
inline constexpr DynamicMap<2> kUnsignedMap;
static_assert(kSignedMap.has_one_middle_per_bucket() && kUnsignedMap.has_one_middle_per_bucket());

// Codes of the signed map count from the most negative number; 127 is 0. There is no -1, and a negative number never
// becomes 0, so that a moment keeps its sign.
inline constexpr int kZeroCode = 127;
[[nodiscard]] constexpr std::uint8_t signed_code(int nearest_magnitude, bool negative) {
  const int below = nearest_magnitude < 1 ? 1 : nearest_magnitude < kZeroCode ? nearest_magnitude : kZeroCode;
  return static_cast<std::uint8_t>(negative ? kZeroCode - below : kZeroCode + nearest_magnitude);
}

// Factor that scales a block's numbers to [-1, 1]: the inverse of its largest magnitude, or 0 if that is too small to
// be inverted; such a block is stored as zeros.
[[nodiscard]] constexpr float inverse_scale(float largest) {
  return largest >= std::numeric_limits<float>::min() ? 1.0f / largest : 0.0f;
}

}  // namespace hone
