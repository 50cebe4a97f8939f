#include "core/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace hone {
namespace {

__extension__ using Wide = unsigned __int128;

// Hashes the name (FNV-1a) and mixes the hash with the seed by one Philox call.
std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  const auto mixed = philox(seed, {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0, 0});
  return (std::uint64_t{mixed[1]} << 32) | mixed[0];
}

// Box-Muller.
float normal_from(std::uint32_t first, std::uint32_t second) {
  const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(uniform_from(first))));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * static_cast<double>(uniform_from(second))));
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t step)
    : key_(key_of(seed, name)), step_(step) {}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t number) const {
  return philox(key_, {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                       static_cast<std::uint32_t>(step_), static_cast<std::uint32_t>(step_ >> 32)});
}

std::uint32_t RandomStream::bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }

float RandomStream::normal(std::uint64_t index) const {
  const std::array<std::uint32_t, 4> words = block(index / 2);
  return normal_from(words[index % 2 * 2], words[index % 2 * 2 + 1]);
}

void RandomStream::normals(std::uint64_t first, std::span<float> values) const {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % 2 == 0) words = block(index / 2);
    values[i] = normal_from(words[index % 2 * 2], words[index % 2 * 2 + 1]);
  }
}

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
  const std::uint64_t word = (std::uint64_t{bits(2 * index)} << 32) | bits(2 * index + 1);
  return static_cast<std::uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

std::vector<std::uint32_t> RandomStream::permutation(std::uint32_t count) const {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i, i)]);
  return order;
}

}  // namespace hone
