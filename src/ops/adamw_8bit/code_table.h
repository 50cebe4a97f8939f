// The codes of the dynamic map for a GPU: one word of memory and five instructions for a number.
#pragma once

#include "ops/adamw_8bit/dynamic_map.h"

namespace hone {

// What a share of the scale is multiplied with: below 2^-23, where all of it is nearest to 0, it has no exponent then,
// and the bits of a float count the map's buckets from 0.
inline constexpr float kCodeScale = 0x1p-103f;

// An entry for each bucket (dynamic_map.h), such that the upper byte of entry + (bits << kUp) is the code of the number
// with these bits: adding what they have below the bucket carries into it where the number is beyond the bucket's
// middle. kNegative: for the bits of negative numbers; the byte is the code's complement, which grows with the
// magnitude.
template <int kFirst, bool kNegative = false>
struct CodeTable {
  using Map = DynamicMap<kFirst>;
  static constexpr int kDown = 23 - Map::kMantissa;  // from bits to a bucket, whose sign follows 8 bits of exponent
  static constexpr int kUp = 24 - kDown;
  static constexpr int kSize = ((Map::kOctaves + 1) << Map::kMantissa) + 1;
  static constexpr std::uint32_t kNan = 0x7FFFFFFFu;  // of all that GPUs compute
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
  // The bits of the bucket's first number, before it is scaled; 0 where it has no exponent.
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
