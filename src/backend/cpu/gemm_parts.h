// Code that gemm() shares among all types: the division of C over threads, biases and rounding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "backend/cpu/vector_math.h"
#include "backend/gemm.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/parallel.h"

namespace hone {

inline constexpr std::int64_t kGemmAlignment = 64;  // bytes

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// The threads of a product and their buffers of equal size, one after the other.
struct ThreadBuffers {
  std::byte* base;
  std::int64_t threads;
};

// Divides the workspace into buffers of `share` bytes for as many threads as it has room for and as are worthwhile:
// one for each work_per_thread multiply-adds. Throws Defect if there is no room for one.
inline ThreadBuffers thread_buffers(const GemmArgs& args, std::size_t share, std::int64_t work_per_thread) {
  void* base = args.workspace.data();
  std::size_t space = args.workspace.size();
  HONE_ASSERT(std::align(kGemmAlignment, share, base, space) != nullptr, args.workspace.size(),
              " bytes of workspace, needs ", share + kGemmAlignment, " bytes");
  const std::int64_t worthwhile = std::max<std::int64_t>(args.m * args.n * args.k / work_per_thread, 1);
  return {static_cast<std::byte*>(base),
          std::min({static_cast<std::int64_t>(thread_count()), static_cast<std::int64_t>(space / share), worthwhile})};
}

// Rows and columns of one tile of C.
struct TileShape {
  std::int64_t rows, columns;
};

// Grid of threads over C.
struct Grid {
  std::int64_t rows = 1, columns = 1;
};

// Returns the grid of at most `threads` threads that minimizes the work of the busiest one. Packing an element costs as
// much as `packing` multiply-adds.
inline Grid grid_of(const GemmArgs& args, const TileShape& tile, std::int64_t threads, double packing) {
  Grid best;
  double best_cost = 0.0;
  for (std::int64_t rows = 1; rows <= threads; ++rows) {
    const std::int64_t columns = threads / rows;
    const auto m = static_cast<double>(ceil_div(ceil_div(args.m, tile.rows), rows) * tile.rows);
    const auto n = static_cast<double>(ceil_div(ceil_div(args.n, tile.columns), columns) * tile.columns);
    const double cost = m * n + packing * (m + n);
    if (rows > 1 && cost >= best_cost) continue;
    best = {rows, columns};
    best_cost = cost;
  }
  return best;
}

// Start of the i-th of `count` parts of [0, size), whose boundaries are multiples of `unit`.
inline std::int64_t cut(std::int64_t size, std::int64_t unit, std::int64_t i, std::int64_t count) {
  return std::min(ceil_div(size, unit) * i / count * unit, size);
}

// Calls body(part, row_begin, row_end, column_begin, column_end) for the part of C at place `part` of the grid.
template <class Body>
void with_part(const GemmArgs& args, const TileShape& tile, const Grid& grid, std::int64_t part, const Body& body) {
  const std::int64_t row = part / grid.columns;
  const std::int64_t column = part % grid.columns;
  body(cut(args.m, tile.rows, row, grid.rows), cut(args.m, tile.rows, row + 1, grid.rows),
       cut(args.n, tile.columns, column, grid.columns), cut(args.n, tile.columns, column + 1, grid.columns));
}

// Adds the bias of columns [first, first + columns) to a row of sums.
template <class Real>
void add_bias(const GemmArgs& args, std::int64_t first, Real* sums, std::int64_t columns) {
  if (args.bias_type == DType::kBf16) {
    const auto* bias = static_cast<const BFloat16*>(args.bias) + first;
    for (std::int64_t i = 0; i < columns; ++i) sums[i] += static_cast<float>(bias[i]);
  } else {
    const auto* bias = static_cast<const Real*>(args.bias) + first;
    for (std::int64_t i = 0; i < columns; ++i) sums[i] += bias[i];
  }
}

inline void narrow(float* out, const float* values, std::int64_t count) {
  std::memcpy(out, values, static_cast<std::size_t>(count) * sizeof(float));
}
inline void narrow(double* out, const double* values, std::int64_t count) {
  std::memcpy(out, values, static_cast<std::size_t>(count) * sizeof(double));
}
inline void narrow(BFloat16* out, const float* values, std::int64_t count) { narrow_row(values, count, out); }

}  // namespace hone
