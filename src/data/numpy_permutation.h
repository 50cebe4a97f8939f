// The permutations of numpy.random.default_rng, by which Hugging Face's datasets shuffles: so that a mixture holds the
// same rows in the same order as there. All else in hone is shuffled by core/random.h.
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

// default_rng(seed).permutation(count).
// Source: numpy's SeedSequence; PCG64: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", 2014 (XSL RR 128/64); Fisher-Yates with masked rejection.
[[nodiscard]] std::vector<std::uint32_t> numpy_permutation(std::uint64_t seed, std::uint32_t count);

}  // namespace hone
