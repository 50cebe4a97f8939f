// Sums in GPU memory that count as zero until something has been added to them (GemmArgs::accumulated).
#pragma once

#include <cstddef>

#include "backend/gemm.h"
#include "backend/gpu/runtime.h"

namespace hone {

// Rows of `bytes` bytes, a multiple of 2, that begin `stride` bytes apart.
struct ClearedRows {
  void* data;
  std::size_t rows, bytes, stride;
};

// The rows of C of a GEMM.
[[nodiscard]] inline ClearedRows rows_of_result(const GemmArgs& args) {
  const std::size_t size = size_of(args.c_type);
  return {args.c, static_cast<std::size_t>(args.m), static_cast<std::size_t>(args.n) * size,
          static_cast<std::size_t>(args.ldc) * size};
}

// Fills the rows with zeros if *accumulated, in GPU memory, is 0.
void clear_unless(const float* accumulated, const ClearedRows& rows, cudaStream_t stream);

}  // namespace hone
