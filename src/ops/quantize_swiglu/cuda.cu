// A block computes a tile of 128 x 128 of swiglu, or of both halves of its gradient, in registers, rounded to bf16 as
// swiglu rounds it, and quantizes it there (ops/quantize/tile.cuh).
#include "ops/quantize/tile.cuh"
#include "ops/quantize_swiglu/quantize_swiglu.h"
#include "ops/registry.h"
#include "ops/swiglu/element.cuh"

namespace hone {
namespace {

using Eight = Pack<__nv_bfloat16, 8>;

__device__ void put(const Eight& values, std::uint32_t (&words)[4]) { memcpy(words, &values, sizeof(values)); }

__global__ void __launch_bounds__(kTileThreads)
    quantize_swiglu_kernel(const __nv_bfloat16* gate_up, RowCount count, QuantizedViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4] = {};
  const std::int64_t used = count.get();
  // Four rows are loaded before any of them is computed.
#pragma unroll
  for (int first = 0; first < 8; first += 4) {
    Eight gate[4];
    Eight up[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = max(min(part.row + first + i, used - 1), std::int64_t{0});
      const __nv_bfloat16* gates = gate_up + row * 2 * to.k + part.column;
      gate[i] = load_streamed<__nv_bfloat16, 8>(gates);
      up[i] = load_streamed<__nv_bfloat16, 8>(gates + to.k);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (part.row + first + i >= used) continue;
      Eight y;
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] = swiglu_element(gate[i][k], up[i][k]);
      put(y, words[first + i]);
    }
  }
  store_tile(words, part, to, memory);
}

// The tile is one of dy: dgate has the same columns of the result, dup those n further.
__global__ void __launch_bounds__(kTileThreads)
    quantize_swiglu_backward_kernel(const __nv_bfloat16* dy, const __nv_bfloat16* gate_up, RowCount count,
                                    QuantizedViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const std::int64_t n = to.k / 2;
  TilePart part(n);
  std::uint32_t dgates[8][4] = {};
  std::uint32_t dups[8][4] = {};
  const std::int64_t used = count.get();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::int64_t row = part.row + i;
    if (row >= used) continue;
    const __nv_bfloat16* gates = gate_up + row * to.k + part.column;
    const Eight d = load_streamed<__nv_bfloat16, 8>(dy + row * n + part.column);
    const Eight gate = load_streamed<__nv_bfloat16, 8>(gates);
    const Eight up = load_streamed<__nv_bfloat16, 8>(gates + n);
    Eight dgate;
    Eight dup;
#pragma unroll
    for (int k = 0; k < 8; ++k) swiglu_gradient_element(d[k], gate[k], up[k], dgate[k], dup[k]);
    put(dgate, dgates[i]);
    put(dup, dups[i]);
  }
  store_tile(dgates, part, to, memory);
  __syncthreads();  // the second tile takes the place of the first in shared memory
  part.column += n;
  store_tile(dups, part, to, memory);
}

void forward(const KernelCall& call) {
  const QuantizedViews to = quantized_views(call);
  if (to.capacity == 0 || to.k == 0) return;
  launch_dependent({tile_count(to), kTileThreads}, stream_of(call), quantize_swiglu_kernel,
                   static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(0))), row_count(call.in(0)), to);
  check_launch("quantize_swiglu");
}

void backward(const KernelCall& call) {
  const TensorView& dy = call.in(QuantizeSwigluBackwardIn::dy);
  const QuantizedViews to = quantized_views(call);
  if (to.capacity == 0 || to.k == 0) return;
  launch_dependent(
      {tile_count(to) / 2, kTileThreads}, stream_of(call), quantize_swiglu_backward_kernel,
      static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(dy)),
      static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(QuantizeSwigluBackwardIn::gate_up))),
      row_count(dy), to);
  check_launch("quantize_swiglu_backward");
}

}  // namespace

void register_quantize_swiglu_cuda(KernelRegistry& registry) {
  registry.add("quantize_swiglu", DeviceKind::kCuda, {forward, {}});
  registry.add("quantize_swiglu_backward", DeviceKind::kCuda, {backward, {}});
}

}  // namespace hone
