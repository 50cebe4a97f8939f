// A block quantizes a tile of 128 rows of one expert and 128 columns (tile.cuh).
#include "ops/quantize_experts/tile.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <TileColumns kColumns>
__global__ void __launch_bounds__(kTileThreads) quantize_experts_kernel(const __nv_bfloat16* x, ExpertViews to) {
  __shared__ TileMemory memory;
  begin_dependent_kernel();
  const std::int64_t k = to.rows.k;
  const ExpertTile tile(k, to);
  clear_unused_rows(to.start[to.experts], to.rows);
  if (tile.empty) return;
  std::uint32_t words[8][4] = {};
  const auto stride = static_cast<std::uint32_t>(k);
  const __nv_bfloat16* const from = x + tile.part.row * k + tile.part.column;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i >= tile.used) continue;
    const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from + static_cast<std::uint32_t>(i) * stride));
    memcpy(words[i], &four, sizeof(four));
  }
  store_expert_tile<kColumns>(words, tile, to, memory);
}

void forward(const KernelCall& call) {
  const TensorView& x = call.in(QuantizeExpertsIn::x);
  const ExpertViews to = expert_views(call, call.in(QuantizeExpertsIn::start));
  if (to.rows.capacity == 0 || to.rows.k == 0) return;
  with_expert_columns(to, [&]<TileColumns kColumns>() {
    launch_dependent({tile_count(to.padded), kTileThreads}, stream_of(call), quantize_experts_kernel<kColumns>,
                     static_cast<const __nv_bfloat16*>(cuda_data<__nv_bfloat16>(x)), to);
  });
  check_launch("quantize_experts");
}

}  // namespace

void register_quantize_experts_cuda(KernelRegistry& registry) {
  registry.add("quantize_experts", DeviceKind::kCuda, {forward, {}});
}

}  // namespace hone
