#include <cstring>

#include "ops/gather_rows/gather_rows.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

void gather_rows_forward(const KernelCall& call) {
  const TensorView& x = call.in(GatherRowsIn::x);
  const TensorView& y = call.out(0);
  const auto* index = call.in(GatherRowsIn::index).as<std::int32_t>();
  const std::size_t row_bytes = static_cast<std::size_t>(x.row_size()) * size_of(x.dtype());
  for (std::int64_t i = 0; i < y.rows(); ++i) {
    HONE_ASSERT(index[i] >= 0 && index[i] < x.rows(), "index ", index[i], " is outside the ", x.rows(), " rows of x");
    std::memcpy(y.data + static_cast<std::size_t>(i) * row_bytes,
                x.data + static_cast<std::size_t>(index[i]) * row_bytes, row_bytes);
  }
  zero_tail(y);
}

}  // namespace

void register_gather_rows_cpu(KernelRegistry& registry) {
  registry.add("gather_rows", DeviceKind::kCpu, {gather_rows_forward, {}});
}

}  // namespace hone
