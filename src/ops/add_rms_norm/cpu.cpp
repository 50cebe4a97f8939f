#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/registry.h"
#include "ops/rms_norm/row.h"

namespace hone {
namespace {

// Forward pass. The sum is rounded before it is normalised.
template <class T>
void add_rms_norm_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(AddRmsNormIn::x);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* residuals = call.in(AddRmsNormIn::residual).as<T>();
  const T* weight = call.in(AddRmsNormIn::weight).as<T>();
  T* sums = call.out(AddRmsNormOut::sum).as<T>();
  T* ys = call.out(AddRmsNormOut::y).as<T>();
  A* rstds = call.out(AddRmsNormOut::rstd).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon);
  for_rows(x.rows(), 2 * n, [&](std::int64_t row) {
    T* sum = sums + row * n;
    for (std::int64_t i = 0; i < n; ++i)
      sum[i] = static_cast<T>(widen(xs[row * n + i]) + widen(residuals[row * n + i]));
    rstds[row] = rms_norm_row(sum, weight, n, epsilon, ys + row * n);
  });
  for (std::size_t i = 0; i < 3; ++i) zero_tail(call.out(i));
}

template <class T>
void add_rms_norm_backward(const KernelCall& call) {
  const TensorView& dsum = call.in(AddRmsNormBackwardIn::dsum);
  rms_norm_backward<T, AddRmsNormBackwardIn, AddRmsNormBackwardOut>(call, dsum ? dsum.as<T>() : nullptr);
}

}  // namespace

void register_add_rms_norm_cpu(KernelRegistry& registry) {
  registry.add("add_rms_norm", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AddRmsNormIn::x).dtype(), [&]<class T>() { add_rms_norm_forward<T>(call); });
                },
                {}});
  registry.add("add_rms_norm_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AddRmsNormBackwardIn::dy).dtype(),
                               [&]<class T>() { add_rms_norm_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
