#include <algorithm>

#include "core/parallel.h"
#include "ops/quantize/rows.h"
#include "ops/quantize_experts/quantize_experts.h"
#include "ops/registry.h"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  const TensorView& x = call.in(QuantizeExpertsIn::x);
  const auto* start = call.in(QuantizeExpertsIn::start).as<std::int32_t>();
  const auto& attributes = call.attributes_as<QuantizeExpertsAttributes>();
  const TensorView& columns = call.out(QuantizeOut::columns);
  const TensorView& scale = call.out(QuantizeOut::column_scale);
  QuantizedViews to{.rows = call.out(QuantizeOut::rows).as<std::uint8_t>(),
                    .row_scale = call.out(QuantizeOut::row_scale).as<float>(),
                    .capacity = x.capacity(),
                    .k = x.row_size()};
  const auto* from = x.as<BFloat16>();
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
    const std::int64_t rows = start[e + 1] - start[e];
    parallel_for(scale_blocks(rows) * across, 2, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t first = tile / across * kScaleBlock;
        quantize_columns(from + (start[e] + first) * to.k, std::min(rows - first, kScaleBlock), before + tile / across,
                         tile % across, to);
      }
    });
    before += scale_blocks(rows);
  }
}

}  // namespace

void register_quantize_experts_cpu(KernelRegistry& registry) {
  registry.add("quantize_experts", DeviceKind::kCpu, {forward, {}});
}

}  // namespace hone
