// Finds the fastest algorithm of a GEMM by measurement.
#pragma once

#include <optional>

#include "backend/cuda/cublas_library.h"

namespace hone {

struct GemmSearch {
  GemmChoice choice;
  std::size_t tried = 0;      // number of algorithms
  std::size_t different = 0;  // number of these that were rejected because their results differ from those of first()
};

// Times the algorithms that the library proposes on random operands. Each run uses operands at other addresses, so that
// they are not in the L2 cache, and the algorithms take turns, so that all run at the same clock. An algorithm is
// accepted only if its result is bitwise equal to that of product.first() over at least 2^20 elements. Tuning thus
// changes no result, and GEMMs of the same weights with different numbers of rows stay consistent. Returns nullopt if
// the GPU has not enough memory for the operands. Waits for the stream.
[[nodiscard]] std::optional<GemmSearch> search_gemm(const CublasGemm& product, cudaStream_t stream);

}  // namespace hone
