#include <algorithm>

#include "core/parallel.h"
#include "ops/quantize/rows.h"
#include "ops/quantize_experts/quantize_experts.h"
#include "ops/quantize_experts/rows.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Clears the columns from row block `first` on.
void clear_columns(std::int64_t first, const QuantizedViews& to) {
  const std::int64_t rows = first * kScaleBlock;
  for_rows(to.k, to.capacity - rows, [&](std::int64_t column) {
    std::fill(to.columns + column * to.capacity + rows, to.columns + (column + 1) * to.capacity, std::uint8_t{0});
  });
  if (to.column_scale_stride == 0) {
    std::fill(to.column_scale + first * to.k, to.column_scale + to.capacity / kScaleBlock * to.k, 1.0F);
    return;
  }
  for (std::int64_t block = 0; block < to.k / kScaleBlock; ++block) {
    float* scales = to.column_scale + block * to.column_scale_stride;
    std::fill(scales + first, scales + to.column_scale_stride, 1.0F);
  }
}

void quantize_experts_forward(const KernelCall& call) {
  quantize_expert_rows(call.in(QuantizeExpertsIn::x).as<BFloat16>(),
                       call.in(QuantizeExpertsIn::start).as<std::int32_t>(), call);
}

}  // namespace

void quantize_expert_rows(const BFloat16* from, const std::int32_t* start, const KernelCall& call) {
  const auto& attributes = call.attributes_as<QuantizeExpertsAttributes>();
  QuantizedViews rows = quantized_views(call, attributes.blocks);
  QuantizedViews to = rows;
  to.capacity = call.out(QuantizeOut::columns).row_size();
  rows.columns = nullptr;
  quantize_rows(from, start[attributes.experts], rows);

  const std::int64_t across = to.k / kScaleBlock;
  std::int64_t before = 0;  // blocks of the experts before
  for (std::int64_t e = 0; e < attributes.experts; ++e) {
    const std::int64_t count = start[e + 1] - start[e];
    parallel_for(scale_blocks(count) * across, 2, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t first = tile / across * kScaleBlock;
        quantize_columns(from + (start[e] + first) * to.k, std::min(count - first, kScaleBlock), before + tile / across,
                         tile % across, to);
      }
    });
    before += scale_blocks(count);
  }
  clear_columns(before, to);
}

void register_quantize_experts_cpu(KernelRegistry& registry) {
  registry.add("quantize_experts", DeviceKind::kCpu, {quantize_experts_forward, {}});
}

}  // namespace hone
