#include "backend/cpu/vector_math.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/swiglu/swiglu.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& y = call.out(0);
  const std::int64_t n = y.row_size();
  const T* gate_ups = call.in(0).as<T>();
  T* ys = y.as<T>();
  for_rows(y.rows(), 8 * n, [&](std::int64_t row) {
    const T* gate = gate_ups + row * 2 * n;
    const T* up = gate + n;
    T* out = ys + row * n;
    for (std::int64_t i = 0; i < n; ++i) {
      const A g = widen(gate[i]);
      out[i] = static_cast<T>(g * vsigmoid(g) * widen(up[i]));
    }
  });
  zero_tail(y);
}

// Computes dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s, where s = sigmoid(gate).
template <class T>
void backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& dy = call.in(SwigluBackwardIn::dy);
  const std::int64_t n = dy.row_size();
  const T* dys = dy.as<T>();
  const T* gate_ups = call.in(SwigluBackwardIn::gate_up).as<T>();
  T* dgate_ups = call.out(0).as<T>();
  for_rows(dy.rows(), 8 * n, [&](std::int64_t row) {
    const T* d = dys + row * n;
    const T* gate = gate_ups + row * 2 * n;
    const T* up = gate + n;
    T* dgate = dgate_ups + row * 2 * n;
    T* dup = dgate + n;
    for (std::int64_t i = 0; i < n; ++i) {
      const A g = widen(gate[i]);
      const A s = vsigmoid(g);
      dgate[i] = static_cast<T>(widen(d[i]) * widen(up[i]) * s * (A(1) + g * (A(1) - s)));
      dup[i] = static_cast<T>(widen(d[i]) * g * s);
    }
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_swiglu_cpu(KernelRegistry& registry) {
  registry.add(
      "swiglu", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); }, {}});
  registry.add("swiglu_backward", DeviceKind::cpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(SwigluBackwardIn::dy).dtype(), [&]<class T>() { backward<T>(call); });
                },
                {}});
}

}  // namespace hone
