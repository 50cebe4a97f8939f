// Permutations equal to those of numpy.random.default_rng, with which Hugging Face's datasets library shuffles. A
// mixture therefore has the same rows in the same order as in open-r1. Everything else in hone is shuffled by
// core/random.h.
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

// Returns default_rng(seed).permutation(count).
// Sources: numpy's SeedSequence; PCG64 (XSL RR 128/64): O'Neill, "PCG: A Family of Simple Fast Space-Efficient
// Statistically Good Algorithms for Random Number Generation", 2014; Fisher-Yates with masked rejection.
[[nodiscard]] std::vector<std::uint32_t> numpy_permutation(std::uint64_t seed, std::uint32_t count);

}  // namespace hone
