#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/row.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void rms_norm_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(RmsNormIn::x);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* weight = call.in(RmsNormIn::weight).as<T>();
  T* ys = call.out(RmsNormOut::y).as<T>();
  A* rstds = call.out(RmsNormOut::rstd).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon);
  for_rows(x.rows(), n,
           [&](std::int64_t row) { rstds[row] = rms_norm_row(xs + row * n, weight, n, epsilon, ys + row * n); });
  zero_tail(call.out(RmsNormOut::y));
  zero_tail(call.out(RmsNormOut::rstd));
}

}  // namespace

void register_rms_norm_cpu(KernelRegistry& registry) {
  registry.add("rms_norm", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(RmsNormIn::x).dtype(), [&]<class T>() { rms_norm_forward<T>(call); });
                },
                {}});
  registry.add("rms_norm_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(RmsNormBackwardIn::dy).dtype(), [&]<class T>() {
                    rms_norm_backward<T, RmsNormBackwardIn, RmsNormBackwardOut>(call, nullptr);
                  });
                },
                {}});
}

}  // namespace hone
