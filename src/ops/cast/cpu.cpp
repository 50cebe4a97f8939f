#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class From, class To>
void convert(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const From* xs = x.as<From>();
  To* ys = call.out(0).as<To>();
  parallel_for(x.rows() * x.row_size(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ys[i] = static_cast<To>(static_cast<Accumulator<To>>(widen(xs[i])));
  });
  zero_tail(call.out(0));
}

void cast_forward(const KernelCall& call) {
  for_floating(call.in(0).dtype(),
               [&]<class From>() { for_floating(call.out(0).dtype(), [&]<class To>() { convert<From, To>(call); }); });
}

}  // namespace

void register_cast_cpu(KernelRegistry& registry) { registry.add("cast", DeviceKind::kCpu, {cast_forward, {}}); }

}  // namespace hone
