#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/row.h"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void layer_norm_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(LayerNormIn::x);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* weight = call.in(LayerNormIn::weight).as<T>();
  const T* bias = call.in(LayerNormIn::bias).as<T>();
  T* ys = call.out(LayerNormOut::y).as<T>();
  A* means = call.out(LayerNormOut::mean).as<A>();
  A* rstds = call.out(LayerNormOut::rstd).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<LayerNormAttributes>().epsilon);
  for_rows(x.rows(), 2 * n, [&](std::int64_t row) {
    const auto statistics = layer_norm_row(xs + row * n, weight, bias, n, epsilon, ys + row * n);
    means[row] = statistics.mean;
    rstds[row] = statistics.rstd;
  });
  for (std::size_t i = 0; i < 3; ++i) zero_tail(call.out(i));
}

}  // namespace

void register_layer_norm_cpu(KernelRegistry& registry) {
  registry.add("layer_norm", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(LayerNormIn::x).dtype(), [&]<class T>() { layer_norm_forward<T>(call); });
                },
                {}});
  registry.add("layer_norm_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(LayerNormBackwardIn::dy).dtype(), [&]<class T>() {
                    layer_norm_backward<T, LayerNormBackwardIn, LayerNormBackwardOut>(call, nullptr);
                  });
                },
                {}});
}

}  // namespace hone
