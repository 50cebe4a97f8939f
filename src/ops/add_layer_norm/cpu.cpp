#include "ops/add_layer_norm/add_layer_norm.h"
#include "ops/layer_norm/row.h"
#include "ops/registry.h"

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
  const T* bias = call.in(3).as<T>();
  T* sums = call.out(0).as<T>();
  T* ys = call.out(1).as<T>();
  A* means = call.out(2).as<A>();
  A* rstds = call.out(3).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<LayerNormAttributes>().epsilon);
  for_rows(x.rows(), 3 * n, [&](std::int64_t row) {
    T* sum = sums + row * n;
    for (std::int64_t i = 0; i < n; ++i)
      sum[i] = static_cast<T>(widen(xs[row * n + i]) + widen(residuals[row * n + i]));
    const auto statistics = layer_norm_row(sum, weight, bias, n, epsilon, ys + row * n);
    means[row] = statistics.mean;
    rstds[row] = statistics.rstd;
  });
  for (std::size_t i = 0; i < 4; ++i) zero_tail(call.out(i));
}

// Inputs: the sum's gradient (or none), then those of layer_norm's backward pass.
template <class T>
void backward(const KernelCall& call) {
  layer_norm_backward<T>(call, 1, call.in(0) ? call.in(0).as<T>() : nullptr);
}

}  // namespace

void register_add_layer_norm_cpu(KernelRegistry& registry) {
  registry.add(
      "add_layer_norm", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); }, {}});
  registry.add(
      "add_layer_norm_backward", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(1).dtype(), [&]<class T>() { backward<T>(call); }); }, {}});
}

}  // namespace hone
