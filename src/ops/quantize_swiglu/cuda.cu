// A block computes a tile of 128 x 128 of swiglu, or of both halves of its gradient, in registers, rounded to bf16 as
// swiglu rounds it, and quantizes it there (ops/quantize/tile.cuh).
#include "ops/quantize/few_rows.cuh"
#include "ops/quantize_swiglu/quantize_swiglu.h"
#include "ops/quantize_swiglu/tile.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads)
    quantize_swiglu_kernel(const __nv_bfloat16* gate_up, RowCount count, QuantizedViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const TilePart part(to.k);
  std::uint32_t words[8][4];
  swiglu_tile(gate_up, to.k, part, part.rows_before(count.get()), words);
  store_tile<kColumns>(words, part, to, memory);
}

__global__ void __launch_bounds__(kTileThreads)
    quantize_swiglu_few_kernel(const __nv_bfloat16* gate_up, RowCount count, QuantizedViews to) {
  begin_dependent_kernel();
  quantize_few_rows(to, count.get(), [&](std::int64_t row, std::int64_t column, std::uint32_t(&words)[4]) {
    const __nv_bfloat16* const gate = gate_up + row * 2 * to.k + column;
    const uint4 gates = __ldcg(reinterpret_cast<const uint4*>(gate));
    const uint4 ups = __ldcg(reinterpret_cast<const uint4*>(gate + to.k));
    words[0] = swiglu_pair<true>(gates.x, ups.x);
    words[1] = swiglu_pair<true>(gates.y, ups.y);
    words[2] = swiglu_pair<true>(gates.z, ups.z);
    words[3] = swiglu_pair<true>(gates.w, ups.w);
  });
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
  swiglu_gradient_tile(dy, gate_up, n, part, part.rows_before(count.get()), dgates, dups);
  store_tile<kColumns>(dgates, part, to, memory);
  // No barrier: the second tile takes the place of the first in shared memory behind the barriers of store_tile().
  part.column += n;
  store_tile<kColumns>(dups, part, to, memory);
}

void forward(const KernelCall& call) {
  const QuantizedViews to = quantized_views(call);
  if (to.capacity == 0 || to.k == 0) return;
  if (has_few_rows(to)) {
    launch_dependent({few_rows_blocks(to), kTileThreads}, stream_of(call), quantize_swiglu_few_kernel,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(0))), row_count(call.in(0)),
                     to);
    return check_launch("quantize_swiglu");
  }
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
