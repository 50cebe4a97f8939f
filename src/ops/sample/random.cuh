// RandomStream (core/random.h) on a GPU.
#pragma once

#include <string_view>

#include "backend/gpu/kernel.cuh"
#include "core/random.h"

namespace hone {

// FNV-1a of a stream's name, as in core/random.cpp.
[[nodiscard]] constexpr std::uint64_t stream_name_hash(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// Random bits RandomStream(seed, name).bits(index) << 32 | .bits(index + 1), for an even index.
[[nodiscard]] __host__ __device__ inline std::uint64_t random_word(std::uint64_t seed, std::uint64_t name_hash,
                                                                   std::uint64_t index) {
  const auto mixed =
      philox(seed, {static_cast<std::uint32_t>(name_hash), static_cast<std::uint32_t>(name_hash >> 32), 0, 0});
  const std::uint64_t key = (std::uint64_t{mixed[1]} << 32) | mixed[0];
  const std::uint64_t block = index / 4;
  const auto words = philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0});
  return index % 4 == 0 ? (std::uint64_t{words[0]} << 32) | words[1] : (std::uint64_t{words[2]} << 32) | words[3];
}

}  // namespace hone
