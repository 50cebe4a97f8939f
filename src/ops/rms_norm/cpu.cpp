#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/row.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(0);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* weight = call.in(1).as<T>();
  T* ys = call.out(0).as<T>();
  A* rstds = call.out(1).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon);
  for_rows(x.rows(), n,
           [&](std::int64_t row) { rstds[row] = rms_norm_row(xs + row * n, weight, n, epsilon, ys + row * n); });
  zero_tail(call.out(0));
  zero_tail(call.out(1));
}

}  // namespace

void register_rms_norm_cpu(KernelRegistry& registry) {
  registry.add(
      "rms_norm", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); }, {}});
  registry.add("rms_norm_backward", DeviceKind::cpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(0).dtype(), [&]<class T>() { rms_norm_backward<T>(call, 0, nullptr); });
                },
                {}});
}

}  // namespace hone
