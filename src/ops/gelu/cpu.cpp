#include <cmath>
#include <numbers>

#include "backend/cpu/vector_math.h"
#include "ops/gelu/gelu.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// (1 + tanh(u)) / 2 = sigmoid(2 u), so that y = x s with s = sigmoid(x (kFirst + kThird x^2)).
struct TanhGelu {
  static constexpr double kFirst = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static constexpr double kThird = kFirst * 0.044715;

  template <class A>
  static A value(A x) {
    return x * vsigmoid(x * (A(kFirst) + A(kThird) * x * x));
  }
  template <class A>
  static A slope(A x) {
    const A s = vsigmoid(x * (A(kFirst) + A(kThird) * x * x));
    return s + x * s * (A(1) - s) * (A(kFirst) + A(3 * kThird) * x * x);
  }
};

struct ExactGelu {
  template <class A>
  static A below(A x) {  // P(X <= x)
    return A(0.5) * std::erfc(-x * A(0.5 * std::numbers::sqrt2));
  }
  template <class A>
  static A value(A x) {
    return x * below(x);
  }
  template <class A>
  static A slope(A x) {
    const A density = A(0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * vexp(A(-0.5) * x * x);
    return below(x) + x * density;
  }
};

template <class T, class Function>
void gelu_forward(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const T* xs = x.as<T>();
  T* ys = call.out(0).as<T>();
  parallel_for(x.rows() * x.row_size(), 2048, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ys[i] = static_cast<T>(Function::value(widen(xs[i])));
  });
  zero_tail(call.out(0));
}

template <class T, class Function>
void gelu_backward(const KernelCall& call) {
  const TensorView& x = call.in(GeluBackwardIn::x);
  const T* dys = call.in(GeluBackwardIn::dy).as<T>();
  const T* xs = x.as<T>();
  T* dxs = call.out(0).as<T>();
  parallel_for(x.rows() * x.row_size(), 2048, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      dxs[i] = static_cast<T>(widen(dys[i]) * Function::slope(widen(xs[i])));
    }
  });
  zero_tail(call.out(0));
}

bool is_exact(const KernelCall& call) { return call.attributes_as<GeluAttributes>().approximate == "none"; }

}  // namespace

void register_gelu_cpu(KernelRegistry& registry) {
  registry.add("gelu", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(0).dtype(), [&]<class T>() {
                    is_exact(call) ? gelu_forward<T, ExactGelu>(call) : gelu_forward<T, TanhGelu>(call);
                  });
                },
                {}});
  registry.add("gelu_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(GeluBackwardIn::dy).dtype(), [&]<class T>() {
                    is_exact(call) ? gelu_backward<T, ExactGelu>(call) : gelu_backward<T, TanhGelu>(call);
                  });
                },
                {}});
}

}  // namespace hone
