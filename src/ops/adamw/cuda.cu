#include "ops/adamw/adamw.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Where everything lies. `kept` is the master weight, and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` null.
template <class T, class W>
struct Tensors {
  using A = CudaAccumulator<T>;
  W* kept;
  T* rounded;
  A* gradient;
  A* m;
  A* v;
  const A* norm;
  const A* hyper;
  const std::int32_t* bad;
  std::int64_t elements;
};

template <class A>
struct Constants {
  double weight_decay;
  A rest1, beta2, rest2, epsilon;
};

// The numbers of a step, as the elements need them.
template <class A>
struct Step {
  A clip, decay, rate, correction2;

  __device__ Step(const A* hyper, A norm, double weight_decay)
      : clip(1), correction2(hyper[static_cast<int>(AdamwHyper::correction2)]) {
    const A max_norm = hyper[static_cast<int>(AdamwHyper::max_grad_norm)];
    if (max_norm > A(0)) {
      const A share = max_norm / (norm + A(1e-6));
      clip = share < A(1) ? share : A(1);
    }
    const A learning_rate = hyper[static_cast<int>(AdamwHyper::learning_rate)];
    decay = static_cast<A>(1.0 - static_cast<double>(learning_rate) * weight_decay);
    rate = learning_rate * hyper[static_cast<int>(AdamwHyper::correction1)];
  }
};

// kPack elements from `at` on.
template <class T, class W, int kPack>
__device__ void update(const Tensors<T, W>& p, const Constants<CudaAccumulator<T>>& c, std::int64_t at) {
  using A = CudaAccumulator<T>;
  using Wide = Pack<A, kPack>;
  auto& gradients = *reinterpret_cast<Wide*>(p.gradient + at);
  auto& ms = *reinterpret_cast<Wide*>(p.m + at);
  auto& vs = *reinterpret_cast<Wide*>(p.v + at);
  auto& all_kept = *reinterpret_cast<Pack<W, kPack>*>(p.kept + at);
  const Wide gradient = gradients;
  Wide m = ms;
  Wide v = vs;
  Pack<W, kPack> kept = all_kept;
  gradients = Wide{};
  if (*p.bad != 0) return;
  const Step<A> step(p.hyper, *p.norm, c.weight_decay);
  Pack<T, kPack> rounded;
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const A g = gradient[k] * step.clip;
    m[k] += c.rest1 * (g - m[k]);
    v[k] = c.beta2 * v[k] + c.rest2 * g * g;
    const A change = step.rate * m[k] / (sqrt(v[k]) * step.correction2 + c.epsilon);
    const A w = widened(kept[k]) * step.decay - change;
    kept[k] = narrowed<W>(w);
    rounded[k] = narrowed<T>(w);
  }
  ms = m;
  vs = v;
  all_kept = kept;
  if constexpr (!std::is_same_v<T, W>) *reinterpret_cast<Pack<T, kPack>*>(p.rounded + at) = rounded;
}

template <class T, class W>
__global__ void __launch_bounds__(kThreads) adamw_kernel(Tensors<T, W> p, Constants<CudaAccumulator<T>> c) {
  constexpr int kPack = kPackSize<CudaAccumulator<T>>;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (at + kPack <= p.elements) {
    update<T, W, kPack>(p, c, at);
  } else {
    for (; at < p.elements; ++at) update<T, W, 1>(p, c, at);
  }
}

template <class T, class W>
void launch(const KernelCall& call, W* kept, T* rounded) {
  using A = CudaAccumulator<T>;
  const auto& a = call.attributes_as<AdamwAttributes>();
  const Tensors<T, W> tensors{.kept = kept,
                              .rounded = rounded,
                              .gradient = cuda_data<A>(call.out(1)),
                              .m = cuda_data<A>(call.out(2)),
                              .v = cuda_data<A>(call.out(3)),
                              .norm = cuda_data<A>(call.in(5)),
                              .hyper = cuda_data<A>(call.in(6)),
                              .bad = cuda_data<std::int32_t>(call.in(7)),
                              .elements = call.out(0).elements()};
  const Constants<A> constants{.weight_decay = a.weight_decay,
                               .rest1 = static_cast<A>(1.0 - a.beta1),
                               .beta2 = static_cast<A>(a.beta2),
                               .rest2 = static_cast<A>(1.0 - a.beta2),
                               .epsilon = static_cast<A>(a.epsilon)};
  const std::int64_t blocks = ceil_div(tensors.elements, kThreads * kPackSize<A>);
  if (blocks == 0) return;
  adamw_kernel<T, W><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(tensors, constants);
  check_launch("adamw");
}

template <class T>
void forward(const KernelCall& call) {
  T* weight = cuda_data<T>(call.out(0));
  if (call.in(4)) {
    launch<T, CudaAccumulator<T>>(call, cuda_data<CudaAccumulator<T>>(call.out(4)), weight);
  } else {
    launch<T, T>(call, weight, nullptr);
  }
}

}  // namespace

void register_adamw_cuda(KernelRegistry& registry) {
  registry.add(
      "adamw", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
}

}  // namespace hone
