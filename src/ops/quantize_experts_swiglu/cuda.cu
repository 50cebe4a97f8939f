// A block computes a tile of swiglu, or of both halves of its gradient, and quantizes it in registers.
#include "ops/quantize_experts/tile.cuh"
#include "ops/quantize_experts_swiglu/quantize_experts_swiglu.h"
#include "ops/quantize_swiglu/tile.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads)
    quantize_experts_swiglu_kernel(const __nv_bfloat16* gate_up, ExpertViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const std::int64_t n = to.rows.k;
  const ExpertTile tile(n, to);
  clear_unused_rows(to.start[to.experts], to.rows);
  if (tile.empty) return;
  std::uint32_t words[8][4];
  swiglu_tile(gate_up, n, tile.part, tile.used, words);
  store_expert_tile<kColumns>(words, tile, to, memory);
}

// The tile is one of dy: dgate has the same columns of the result, dup those n further.
template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads, 2)
    quantize_experts_swiglu_backward_kernel(const __nv_bfloat16* dy, const __nv_bfloat16* gate_up, ExpertViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const std::int64_t n = to.rows.k / 2;
  ExpertTile tile(n, to);
  clear_unused_rows(to.start[to.experts], to.rows);
  if (tile.empty) return;
  std::uint32_t dgates[8][4];
  std::uint32_t dups[8][4];
  swiglu_gradient_tile(dy, gate_up, n, tile.part, tile.used, dgates, dups);
  store_expert_tile<kColumns>(dgates, tile, to, memory);
  // No barrier: the second tile takes the place of the first in shared memory behind the barriers of the first.
  tile.part.column += n;
  tile.place.column += n;
  store_expert_tile<kColumns>(dups, tile, to, memory);
}

void forward(const KernelCall& call) {
  const TensorView& gate_up = call.in(QuantizeExpertsSwigluIn::gate_up);
  const ExpertViews to = expert_views(call, call.in(QuantizeExpertsSwigluIn::start));
  if (to.rows.capacity == 0 || to.rows.k == 0) return;
  with_expert_columns(to, [&]<TileColumns kColumns>() {
    launch_dependent({tile_count(to.padded), kTileThreads}, stream_of(call), quantize_experts_swiglu_kernel<kColumns>,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(gate_up)), to);
  });
  check_launch("quantize_experts_swiglu");
}

void backward(const KernelCall& call) {
  using In = QuantizeExpertsSwigluBackwardIn;
  const ExpertViews to = expert_views(call, call.in(In::start));
  if (to.rows.capacity == 0 || to.rows.k == 0) return;
  with_expert_columns(to, [&]<TileColumns kColumns>() {
    launch_dependent({tile_count(to.padded) / 2, kTileThreads}, stream_of(call),
                     quantize_experts_swiglu_backward_kernel<kColumns>,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(In::dy))),
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(call.in(In::gate_up))), to);
  });
  check_launch("quantize_experts_swiglu_backward");
}

}  // namespace

void register_quantize_experts_swiglu_cuda(KernelRegistry& registry) {
  registry.add("quantize_experts_swiglu", DeviceKind::kCuda, {forward, {}});
  registry.add("quantize_experts_swiglu_backward", DeviceKind::kCuda, {backward, {}});
}

}  // namespace hone
