#include <algorithm>

#include "ops/fill/fill.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void fill_forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const T value(static_cast<Accumulator<T>>(call.attributes_as<FillAttributes>().value));
  std::fill_n(y.as<T>(), y.rows() * y.row_size(), value);
  zero_tail(y);
}

}  // namespace

void register_fill_cpu(KernelRegistry& registry) {
  registry.add(
      "fill", DeviceKind::kCpu,
      {[](const KernelCall& call) { for_floating(call.out(0).dtype(), [&]<class T>() { fill_forward<T>(call); }); },
       {}});
}

}  // namespace hone
