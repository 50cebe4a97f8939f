#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/swiglu/rows.h"
#include "ops/swiglu/swiglu.h"

namespace hone {
namespace {

template <class T>
void forward_row(const T* gate, const T* up, std::int64_t n, T* y) {
  swiglu_row(gate, up, n, y);
}
HONE_VECTOR_CLONES void forward_row(const float* __restrict gate, const float* __restrict up, std::int64_t n,
                                    float* __restrict y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] * vsigmoid(gate[i]) * up[i];
}

template <class T>
void backward_row(const T* dy, const T* gate, const T* up, std::int64_t n, T* dgate, T* dup) {
  swiglu_backward_row(dy, gate, up, n, dgate, dup);
}
HONE_VECTOR_CLONES void backward_row(const float* __restrict dy, const float* __restrict gate,
                                     const float* __restrict up, std::int64_t n, float* __restrict dgate,
                                     float* __restrict dup) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = vsigmoid(gate[i]);
    dgate[i] = dy[i] * up[i] * s * (1.0F + gate[i] * (1.0F - s));
    dup[i] = dy[i] * gate[i] * s;
  }
}

template <class T>
void swiglu_forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const std::int64_t n = y.row_size();
  const T* gate_ups = call.in(0).as<T>();
  T* ys = y.as<T>();
  for_rows(y.rows(), 8 * n, [&](std::int64_t row) {
    const T* gate = gate_ups + row * 2 * n;
    forward_row(gate, gate + n, n, ys + row * n);
  });
  zero_tail(y);
}

template <class T>
void swiglu_backward(const KernelCall& call) {
  const TensorView& dy = call.in(SwigluBackwardIn::dy);
  const std::int64_t n = dy.row_size();
  const T* dys = dy.as<T>();
  const T* gate_ups = call.in(SwigluBackwardIn::gate_up).as<T>();
  T* dgate_ups = call.out(0).as<T>();
  for_rows(dy.rows(), 8 * n, [&](std::int64_t row) {
    const T* gate = gate_ups + row * 2 * n;
    T* dgate = dgate_ups + row * 2 * n;
    backward_row(dys + row * n, gate, gate + n, n, dgate, dgate + n);
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_swiglu_cpu(KernelRegistry& registry) {
  registry.add(
      "swiglu", DeviceKind::kCpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { swiglu_forward<T>(call); }); },
       {}});
  registry.add("swiglu_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(SwigluBackwardIn::dy).dtype(), [&]<class T>() { swiglu_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
