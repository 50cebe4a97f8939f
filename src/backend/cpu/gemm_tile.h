// The tile kernel, for the sources that instantiate it for a vector instruction set. Everything is in an unnamed
// namespace, so that each source has separate code: the linker could otherwise select AVX-512 code for all machines.
// Before they include this file, the sources define HONE_TILE_TARGET, the attribute of functions with these
// instructions.
#pragma once

#include <cstdint>
#include <utility>

#include "backend/cpu/gemm_kernels.h"

#define HONE_TILE_INLINE HONE_TILE_TARGET __attribute__((always_inline)) inline

namespace hone {
namespace {

// Keeps the compiler from folding the arithmetic that led to `value` into later addresses: it would precompute an
// offset for each load of an unrolled loop, more than there are registers.
template <class T>
HONE_TILE_INLINE void hide(T& value) {
  asm("" : "+r"(value));
}

// Where a tile reads a: one pointer if the rows of an element of k are neighbours, otherwise one for every
// third row, because an address may add one or two strides.
template <class V, int Rows, bool DepthMajor>
struct TileCursor {
  using Real = typename V::Real;
  static constexpr int kPointers = DepthMajor ? 1 : (Rows + 2) / 3;
  const Real* pointer[kPointers];
  std::int64_t lda;

  HONE_TILE_INLINE TileCursor(const Real* a, std::int64_t stride) : lda(stride) {
#pragma GCC unroll 4
    for (int p = 0; p < kPointers; ++p) {
      pointer[p] = a + std::int64_t{3} * p * lda;
      hide(pointer[p]);
    }
    hide(lda);
  }
  HONE_TILE_INLINE typename V::Vector row(int r) const {
    return V::broadcast(DepthMajor ? pointer[0] + r : pointer[r / 3] + (r % 3) * lda);
  }
  HONE_TILE_INLINE void advance() {
#pragma GCC unroll 4
    for (int p = 0; p < kPointers; ++p) {
      pointer[p] += DepthMajor ? lda : 1;
      if (DepthMajor) hide(pointer[p]);
    }
  }
};

// Rows by two vectors of C. V has the vector type and its functions.
template <class V, int Rows, bool DepthMajor>
HONE_TILE_TARGET void tile(const TileArgs<typename V::Real>& args) {
  using Real = typename V::Real;
  constexpr std::int64_t kUnroll = 4;
  constexpr std::int64_t kLine = 64 / sizeof(Real);  // elements of a line of the caches
  const std::int64_t ldc = args.ldc;
  Real* c = args.c;
  typename V::Vector low[Rows], high[Rows];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    low[r] = args.load ? V::load(c + r * ldc) : V::zero();
    high[r] = args.load ? V::load(c + r * ldc + V::kLanes) : V::zero();
  }
  TileCursor<V, Rows, DepthMajor> a(args.a, args.lda);
  const Real* b = args.b;
  const std::int64_t ldb = args.ldb;
  const auto add = [&]() HONE_TILE_TARGET __attribute__((always_inline)) {
    const auto b0 = V::load(b);
    const auto b1 = V::load(b + V::kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const auto x = a.row(r);
      low[r] = V::fma(x, b0, low[r]);
      high[r] = V::fma(x, b1, high[r]);
    }
    a.advance();
    b += ldb;
    hide(b);
  };
  const Real* next = args.next;
  std::int64_t left = args.depth;
  for (int row = 0; row < Rows && next != nullptr && left >= kUnroll; ++row, next += ldc, left -= kUnroll) {
#pragma GCC unroll 2
    for (std::int64_t at = 0; at < 2 * V::kLanes; at += kLine) __builtin_prefetch(next + at, 1);
#pragma GCC unroll 4
    for (int i = 0; i < kUnroll; ++i) add();
  }
  for (; left >= kUnroll; left -= kUnroll) {
#pragma GCC unroll 4
    for (int i = 0; i < kUnroll; ++i) add();
  }
  for (; left > 0; --left) add();
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    V::store(c + r * ldc, low[r]);
    V::store(c + r * ldc + V::kLanes, high[r]);
  }
}

// The kernels of 1, 2, ... rows: `r` counts from 0.
template <class V, int... r>
TileKernels<typename V::Real> make_tile_kernels(std::integer_sequence<int, r...>) {
  return {sizeof...(r), 2 * V::kLanes, {tile<V, r + 1, true>...}, {tile<V, r + 1, false>...}};
}

}  // namespace
}  // namespace hone
