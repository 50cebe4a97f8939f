#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/registry.h"
#include "ops/rms_norm/row.h"

namespace hone {
namespace {

// The sum is rounded before it is normalised.
template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(0);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* residuals = call.in(1).as<T>();
  const T* weight = call.in(2).as<T>();
  T* sums = call.out(0).as<T>();
  T* ys = call.out(1).as<T>();
  A* rstds = call.out(2).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon);
  for_rows(x.rows(), 2 * n, [&](std::int64_t row) {
    T* sum = sums + row * n;
    for (std::int64_t i = 0; i < n; ++i)
      sum[i] = static_cast<T>(widen(xs[row * n + i]) + widen(residuals[row * n + i]));
    rstds[row] = rms_norm_row(sum, weight, n, epsilon, ys + row * n);
  });
  for (std::size_t i = 0; i < 3; ++i) zero_tail(call.out(i));
}

// Inputs: the sum's gradient (or none), then those of rms_norm's backward pass.
template <class T>
void backward(const KernelCall& call) {
  rms_norm_backward<T>(call, 1, call.in(0) ? call.in(0).as<T>() : nullptr);
}

}  // namespace

void register_add_rms_norm_cpu(KernelRegistry& registry) {
  registry.add(
      "add_rms_norm", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); }, {}});
  registry.add(
      "add_rms_norm_backward", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(1).dtype(), [&]<class T>() { backward<T>(call); }); }, {}});
}

}  // namespace hone
