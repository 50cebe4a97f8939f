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

// The norm's gradient is rounded before the sum's is added. dweight is summed in the order of rows.
template <class T>
void backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& sum = call.in(2);
  const std::int64_t n = sum.row_size();
  const std::int64_t rows = sum.rows();
  const T* dsums = call.in(0) ? call.in(0).as<T>() : nullptr;
  const T* dys = call.in(1).as<T>();
  const T* xs = sum.as<T>();
  const T* weight = call.in(3).as<T>();
  const A* rstds = call.in(4).as<A>();
  T* dxs = call.out(0).as<T>();
  for_rows(rows, 3 * n, [&](std::int64_t row) {
    T* dx = dxs + row * n;
    rms_norm_row_backward(dys + row * n, xs + row * n, weight, rstds[row], n, dx);
    if (dsums == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(widen(dsums[row * n + i]) + widen(dx[i]));
  });
  zero_tail(call.out(0));
  if (!call.in(5)) return;
  A* dweight = call.out(1).as<A>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
      rms_norm_row_weight_gradient(dys + row * n, xs + row * n, rstds[row], begin, end, dweight);
    }
  });
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
