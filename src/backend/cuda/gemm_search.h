// The fastest algorithm of a matrix product, by trying.
#pragma once

#include <optional>

#include "backend/cuda/cublas_library.h"

namespace hone {

struct GemmSearch {
  GemmChoice choice;
  std::size_t tried = 0;      // algorithms
  std::size_t different = 0;  // of these, left out because their results were not those of first(), bit for bit
};

// Times the library's proposals on random operands that lie elsewhere at each run, in turns, so that
// all see the same clock. An algorithm counts only if its result equals that of product.first() in every bit, over at
// least a million elements: tuning changes no number, and products of the same weights with other numbers of rows stay
// consistent. Nothing where the GPU has no memory for the operands. Waits for the stream.
[[nodiscard]] std::optional<GemmSearch> search_gemm(const CublasProduct& product, cudaStream_t stream);

}  // namespace hone
