// A block computes a tile of 128 x 128 of swiglu, or of both halves of its gradient, in registers, rounded to bf16 as
// swiglu rounds it, and quantizes it there (ops/quantize/tile.cuh).
#include "ops/quantize/tile.cuh"
#include "ops/quantize_swiglu/quantize_swiglu.h"
#include "ops/registry.h"
#include "ops/swiglu/element.cuh"

namespace hone {
namespace {

constexpr int kBatch = 4;  // rows that are loaded before one of them is computed

// Loads eight columns of kBatch rows of bf16, each as four pairs; row `first` is at `from`. Rows from `used` on are 0.
__device__ void load_rows(const __nv_bfloat16* from, std::uint32_t stride, int first, int used,
                          std::uint32_t (&pairs)[kBatch][4]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const auto* row = reinterpret_cast<const uint4*>(from + static_cast<std::uint32_t>(i) * stride);
    const uint4 words = first + i < used ? __ldcg(row) : uint4{};
    memcpy(pairs[i], &words, sizeof(words));
  }
}

// Calls body.operator()<steep>(): false, which is faster, if no gate is steep (ops/sigmoid.cuh).
template <class Body>
__device__ void with_steepness(const std::uint32_t (&gates)[kBatch][4], const Body& body) {
  if (has_steep(gates)) {
    body.template operator()<true>();
  } else {
    body.template operator()<false>();
  }
}

template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads)
    quantize_swiglu_kernel(const __nv_bfloat16* gate_up, RowCount count, QuantizedViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4];
  const int used = part.rows_before(count.get());
  const auto stride = static_cast<std::uint32_t>(2 * to.k);
  const __nv_bfloat16* from = gate_up + part.row * stride + part.column;
#pragma unroll
  for (int first = 0; first < 8; first += kBatch, from += kBatch * stride) {
    std::uint32_t gates[kBatch][4];
    std::uint32_t ups[kBatch][4];
    load_rows(from, stride, first, used, gates);
    load_rows(from + to.k, stride, first, used, ups);
    with_steepness(gates, [&]<bool kSteep>() {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) words[first + i][j] = swiglu_pair<kSteep>(gates[i][j], ups[i][j]);
      }
    });
  }
  store_tile<kColumns>(words, part, to, memory);
}

// The tile is one of dy: dgate has the same columns of the result, dup those n further.
template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads, 2)
    quantize_swiglu_backward_kernel(const __nv_bfloat16* dy, const __nv_bfloat16* gate_up, RowCount count,
                                    QuantizedViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const std::int64_t n = to.k / 2;
  TilePart part(n);
  std::uint32_t dgates[8][4];
  std::uint32_t dups[8][4];
  const int used = part.rows_before(count.get());
  const auto stride = static_cast<std::uint32_t>(n);
  const __nv_bfloat16* from = gate_up + part.row * to.k + part.column;
  const __nv_bfloat16* from_dy = dy + part.row * n + part.column;
#pragma unroll
  for (int first = 0; first < 8; first += kBatch, from += kBatch * to.k, from_dy += kBatch * n) {
    std::uint32_t dys[kBatch][4];
    std::uint32_t gates[kBatch][4];
    std::uint32_t ups[kBatch][4];
    load_rows(from_dy, stride, first, used, dys);
    load_rows(from, 2 * stride, first, used, gates);
    load_rows(from + n, 2 * stride, first, used, ups);
    with_steepness(gates, [&]<bool kSteep>() {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          swiglu_gradient_pair<kSteep>(dys[i][j], gates[i][j], ups[i][j], dgates[first + i][j], dups[first + i][j]);
        }
      }
    });
  }
  store_tile<kColumns>(dgates, part, to, memory);
  // No barrier: the second tile takes the place of the first in shared memory behind the barriers of store_tile().
  part.column += n;
  store_tile<kColumns>(dups, part, to, memory);
}

void forward(const KernelCall& call) {
  const QuantizedViews to = quantized_views(call);
  if (to.capacity == 0 || to.k == 0) return;
  with_columns(to, [&]<TileColumns kColumns>() {
    launch_dependent({tile_count(to), kTileThreads}, stream_of(call), quantize_swiglu_kernel<kColumns>,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(0))), row_count(call.in(0)),
                     to);
  });
  check_launch("quantize_swiglu");
}

void backward(const KernelCall& call) {
  const TensorView& dy = call.in(QuantizeSwigluBackwardIn::dy);
  const QuantizedViews to = quantized_views(call);
  if (to.capacity == 0 || to.k == 0) return;
  with_columns(to, [&]<TileColumns kColumns>() {
    launch_dependent(
        {tile_count(to) / 2, kTileThreads}, stream_of(call), quantize_swiglu_backward_kernel<kColumns>,
        static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(dy)),
        static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(QuantizeSwigluBackwardIn::gate_up))),
        row_count(dy), to);
  });
  check_launch("quantize_swiglu_backward");
}

}  // namespace

void register_quantize_swiglu_cuda(KernelRegistry& registry) {
  registry.add("quantize_swiglu", DeviceKind::kCuda, {forward, {}});
  registry.add("quantize_swiglu_backward", DeviceKind::kCuda, {backward, {}});
}

}  // namespace hone
