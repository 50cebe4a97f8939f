#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/scale/scale.h"

namespace hone {
namespace {

template <class T>
void scale_forward(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const T* xs = x.as<T>();
  T* ys = call.out(0).as<T>();
  const auto factor = static_cast<Accumulator<T>>(call.attributes_as<ScaleAttributes>().factor);
  parallel_for(x.rows() * x.row_size(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ys[i] = static_cast<T>(widen(xs[i]) * factor);
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_scale_cpu(KernelRegistry& registry) {
  registry.add(
      "scale", DeviceKind::kCpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { scale_forward<T>(call); }); },
       {}});
}

}  // namespace hone
