#include "ops/add_layer_norm/add_layer_norm.h"
#include "ops/layer_norm/row.h"
#include "ops/registry.h"

namespace hone {
namespace {

// Forward pass. The sum is rounded before it is normalised.
template <class T>
void add_layer_norm_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(AddLayerNormIn::x);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* residuals = call.in(AddLayerNormIn::residual).as<T>();
  const T* weight = call.in(AddLayerNormIn::weight).as<T>();
  const T* bias = call.in(AddLayerNormIn::bias).as<T>();
  T* sums = call.out(AddLayerNormOut::sum).as<T>();
  T* ys = call.out(AddLayerNormOut::y).as<T>();
  A* means = call.out(AddLayerNormOut::mean).as<A>();
  A* rstds = call.out(AddLayerNormOut::rstd).as<A>();
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

template <class T>
void add_layer_norm_backward(const KernelCall& call) {
  const TensorView& dsum = call.in(AddLayerNormBackwardIn::dsum);
  layer_norm_backward<T, AddLayerNormBackwardIn, AddLayerNormBackwardOut>(call, dsum ? dsum.as<T>() : nullptr);
}

}  // namespace

void register_add_layer_norm_cpu(KernelRegistry& registry) {
  registry.add("add_layer_norm", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AddLayerNormIn::x).dtype(), [&]<class T>() { add_layer_norm_forward<T>(call); });
                },
                {}});
  registry.add("add_layer_norm_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AddLayerNormBackwardIn::dy).dtype(),
                               [&]<class T>() { add_layer_norm_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
