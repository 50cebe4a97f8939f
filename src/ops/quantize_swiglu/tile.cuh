// Swiglu and its gradient for a tile in registers, rounded to bf16 as swiglu rounds them.
#pragma once

#include "ops/quantize/tile.cuh"
#include "ops/swiglu/element.cuh"

namespace hone {

inline constexpr int kSwigluBatch = 4;  // rows that are loaded before one of them is computed

// Loads eight columns of kSwigluBatch rows of bf16, each as four pairs; row `first` is at `from`. Rows from `used` on
// are 0.
__device__ inline void load_swiglu_rows(const __nv_bfloat16* from, std::uint32_t stride, int first, int used,
                                        std::uint32_t (&pairs)[kSwigluBatch][4]) {
#pragma unroll
  for (int i = 0; i < kSwigluBatch; ++i) {
    const auto* row = reinterpret_cast<const uint4*>(from + static_cast<std::uint32_t>(i) * stride);
    const uint4 words = first + i < used ? __ldcg(row) : uint4{};
    memcpy(pairs[i], &words, sizeof(words));
  }
}

// Calls body.operator()<steep>(): false, which is faster, if no gate is steep (ops/sigmoid.cuh).
template <class Body>
__device__ inline void with_steepness(const std::uint32_t (&gates)[kSwigluBatch][4], const Body& body) {
  if (has_steep(gates)) {
    body.template operator()<true>();
  } else {
    body.template operator()<false>();
  }
}

// Computes eight rows and columns of swiglu from row and column `part` of gate_up [rows, 2 n]; rows from `used` on are
// 0.
__device__ inline void swiglu_tile(const __nv_bfloat16* gate_up, std::int64_t n, const TilePart& part, int used,
                                   std::uint32_t (&words)[8][4]) {
  const auto stride = static_cast<std::uint32_t>(2 * n);
  const __nv_bfloat16* from = gate_up + part.row * stride + part.column;
#pragma unroll
  for (int first = 0; first < 8; first += kSwigluBatch, from += kSwigluBatch * stride) {
    std::uint32_t gates[kSwigluBatch][4];
    std::uint32_t ups[kSwigluBatch][4];
    load_swiglu_rows(from, stride, first, used, gates);
    load_swiglu_rows(from + n, stride, first, used, ups);
    with_steepness(gates, [&]<bool kSteep>() {
#pragma unroll
      for (int i = 0; i < kSwigluBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) words[first + i][j] = swiglu_pair<kSteep>(gates[i][j], ups[i][j]);
      }
    });
  }
}

// Computes the same part of both halves of the gradient of gate_up from dy [rows, n].
__device__ inline void swiglu_gradient_tile(const __nv_bfloat16* dy, const __nv_bfloat16* gate_up, std::int64_t n,
                                            const TilePart& part, int used, std::uint32_t (&dgates)[8][4],
                                            std::uint32_t (&dups)[8][4]) {
  const auto stride = static_cast<std::uint32_t>(n);
  const __nv_bfloat16* from = gate_up + part.row * (2 * n) + part.column;
  const __nv_bfloat16* from_dy = dy + part.row * n + part.column;
#pragma unroll
  for (int first = 0; first < 8; first += kSwigluBatch, from += kSwigluBatch * (2 * n), from_dy += kSwigluBatch * n) {
    std::uint32_t dys[kSwigluBatch][4];
    std::uint32_t gates[kSwigluBatch][4];
    std::uint32_t ups[kSwigluBatch][4];
    load_swiglu_rows(from_dy, stride, first, used, dys);
    load_swiglu_rows(from, 2 * stride, first, used, gates);
    load_swiglu_rows(from + n, 2 * stride, first, used, ups);
    with_steepness(gates, [&]<bool kSteep>() {
#pragma unroll
      for (int i = 0; i < kSwigluBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          swiglu_gradient_pair<kSteep>(dys[i][j], gates[i][j], ups[i][j], dgates[first + i][j], dups[first + i][j]);
        }
      }
    });
  }
}

}  // namespace hone
