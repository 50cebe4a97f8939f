#include "ops/elementwise.cuh"
#include "ops/gelu/gelu.h"
#include "ops/registry.h"
#include "ops/sigmoid.cuh"

namespace hone {
namespace {

constexpr double kTwoOverRootTwoPi = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kRootHalf = 0.7071067811865476;

// (1 + tanh(u)) / 2 = sigmoid(2 u), so that y = x s with s = sigmoid(x (kFirst + kThird x^2)).
template <class T>
struct TanhGelu {
  using A = CudaAccumulator<T>;
  static constexpr A kFirst = static_cast<A>(2.0 * kTwoOverRootTwoPi);
  static constexpr A kThird = static_cast<A>(2.0 * kTwoOverRootTwoPi * 0.044715);
  static constexpr A kThreeThirds = static_cast<A>(3.0 * 2.0 * kTwoOverRootTwoPi * 0.044715);

  static __device__ A value(A x) { return x * sigmoid<T>(x * (kFirst + kThird * x * x)); }
  static __device__ A slope(A x) {
    const A s = sigmoid<T>(x * (kFirst + kThird * x * x));
    return s + x * s * (A(1) - s) * (kFirst + kThreeThirds * x * x);
  }
};

template <class T>
struct ExactGelu {
  using A = CudaAccumulator<T>;
  // P(X <= x). For bf16 it is computed from erf; its cancellation far below 0 is too small to matter in a sum of
  // activations.
  static __device__ A below(A x) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return 0.5f + 0.5f * erff(x * static_cast<A>(kRootHalf));
    } else {
      return A(0.5) * erfc(-x * static_cast<A>(kRootHalf));
    }
  }
  static __device__ A value(A x) { return x * below(x); }
  static __device__ A slope(A x) {
    const A exponent = A(-0.5) * x * x;
    const A density = static_cast<A>(0.5 * kTwoOverRootTwoPi);
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return below(x) + x * density * __expf(exponent);
    } else {
      return below(x) + x * density * exp(exponent);
    }
  }
};

template <class T, class Function>
struct Value {
  __device__ T operator()(T x) const { return narrowed<T>(Function::value(widened(x))); }
};

template <class T, class Function>
struct Gradient {
  __device__ T operator()(T dy, T x) const { return narrowed<T>(widened(dy) * Function::slope(widened(x))); }
};

// Calls body.operator()<T, Function>() for the call's dtype and its form of GELU.
template <class Body>
void for_form(const KernelCall& call, const Body& body) {
  const bool exact = call.attributes_as<GeluAttributes>().approximate == "none";
  for_cuda_floating(call.inputs.front().dtype(), [&]<class T>() {
    if (exact) return body.template operator()<T, ExactGelu<T>>();
    body.template operator()<T, TanhGelu<T>>();
  });
}

void forward(const KernelCall& call) {
  for_form(call, [&]<class T, class Function>() {
    launch_elementwise<T, Value<T, Function>, T>(call, cuda_data<T>(call.out(0)), {}, cuda_data<T>(call.in(0)));
  });
}

void backward(const KernelCall& call) {
  for_form(call, [&]<class T, class Function>() {
    launch_elementwise<T, Gradient<T, Function>, T, T>(call, cuda_data<T>(call.out(0)), {},
                                                       cuda_data<T>(call.in(GeluBackwardIn::dy)),
                                                       cuda_data<T>(call.in(GeluBackwardIn::x)));
  });
}

}  // namespace

void register_gelu_cuda(KernelRegistry& registry) {
  registry.add("gelu", DeviceKind::kCuda, {forward, {}});
  registry.add("gelu_backward", DeviceKind::kCuda, {backward, {}});
}

}  // namespace hone
