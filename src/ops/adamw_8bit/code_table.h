// Lookup tables that encode numbers by the dynamic map on a GPU, with one load and five instructions for a number.
#pragma once

#include "ops/adamw_8bit/dynamic_map.h"

namespace hone {

// Factor of number / scale before the lookup. With it, a quotient below 2^-23, whose nearest level is 0, becomes a
// denormal float with exponent 0, so that the upper bits of a float count the map's buckets from 0.
inline constexpr float kCodeScale = 0x1p-103f;

// An entry for each bucket (dynamic_map.h). The upper byte of entry + (bits << kUp) is the code of the float with these
// bits: adding the bits below the bucket's number carries into that byte if the float is above the middle in the
// bucket. kNegative: the table for negative numbers; the byte is the complement of the code, which grows with the
// magnitude.
template <int kFirst, bool kNegative = false>
struct CodeTable {
  using Map = DynamicMap<kFirst>;
  static constexpr int kDown = 23 - Map::kMantissa;  // shift from the bits of a float to its bucket
  static constexpr int kUp = 24 - kDown;
  static constexpr int kSize = ((Map::kOctaves + 1) << Map::kMantissa) + 1;
  static constexpr std::uint32_t kNan = 0x7FFFFFFFu;  // the only NaN that GPU arithmetic produces
  static constexpr std::uint32_t kNanEntry = 0xFF000000u - (kNan << kUp);

  std::array<std::uint32_t, kSize> entries{};

  constexpr CodeTable() {
    constexpr Map map;
    constexpr std::uint32_t kUnit = std::uint32_t{1} << kDown;
    for (std::uint32_t bucket = 0; bucket < kSize; ++bucket) {
      const std::uint32_t start = bucket_start(bucket);
      const int index = map.nearest(std::bit_cast<float>(start));
      const auto middle = std::bit_cast<std::uint32_t>(map.middles[static_cast<std::size_t>(index)]);
      const bool changes = middle >= start && middle - start < kUnit && byte_of(index + 1) != byte_of(index);
      const std::uint32_t carry = changes ? kUnit - 1 - (middle - start) : 0;
      entries[bucket] = (byte_of(index) << 24) + (carry << kUp) - (bucket << 24);
    }
  }

 private:
  // The bits of the first float of a bucket, without the factor kCodeScale; 0 for the buckets of denormals.
  static constexpr std::uint32_t bucket_start(std::uint32_t bucket) {
    constexpr std::uint32_t kOctave = 1u << Map::kMantissa;
    return bucket < kOctave ? 0 : (bucket + 103 * kOctave) << kDown;
  }
  static constexpr std::uint32_t byte_of(int index) {
    if (kFirst == 2) return static_cast<std::uint32_t>(index);
    const std::uint32_t code = signed_code(index, kNegative);
    return kNegative ? 255 - code : code;
  }
};

}  // namespace hone
