#include <algorithm>

#include "core/parallel.h"
#include "ops/quantize/rows.h"
#include "ops/quantize_experts/quantize_experts.h"
#include "ops/quantize_experts/rows.h"
#include "ops/registry.h"

namespace hone {

void quantize_expert_rows(const BFloat16* from, const std::int32_t* start, const KernelCall& call) {
  const auto& attributes = call.attributes_as<QuantizeExpertsAttributes>();
  const TensorView& columns = call.out(QuantizeOut::columns);
  const TensorView& scale = call.out(QuantizeOut::column_scale);
  const TensorView& rows = call.out(QuantizeOut::rows);
  QuantizedViews to{.rows = rows.as<std::uint8_t>(),
                    .row_scale = call.out(QuantizeOut::row_scale).as<float>(),
                    .capacity = rows.capacity(),
                    .k = rows.row_size()};
  quantize_rows(from, start[attributes.experts], to);

  to.columns = columns.as<std::uint8_t>();
  to.column_scale = scale.as<float>();
  to.column_scale_stride = attributes.blocks ? scale.row_size() : 0;
  to.capacity = columns.row_size();
  const std::int64_t across = to.k / kScaleBlock;
  std::fill_n(to.column_scale, scale.elements(), 1.0F);
  std::fill_n(to.columns, columns.elements(), std::uint8_t{0});
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
}

namespace {

void forward(const KernelCall& call) {
  quantize_expert_rows(call.in(QuantizeExpertsIn::x).as<BFloat16>(),
                       call.in(QuantizeExpertsIn::start).as<std::int32_t>(), call);
}

}  // namespace

void register_quantize_experts_cpu(KernelRegistry& registry) {
  registry.add("quantize_experts", DeviceKind::kCpu, {forward, {}});
}

}  // namespace hone
