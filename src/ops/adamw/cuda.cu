#include <algorithm>
#include <type_traits>

#include "ops/adamw/adamw.h"
#include "ops/adamw/rounding.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 528;  // four for each multiprocessor of a large GPU: they stay till the end

// Where everything lies. `kept` is the master weight, and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` null.
template <class T, class W, class S, class G>
struct Tensors {
  using A = CudaAccumulator<T>;
  static constexpr bool kRandom = std::is_same_v<W, __nv_bfloat16> || std::is_same_v<S, __nv_bfloat16>;
  // Elements of a thread: 16 bytes of the widest, at most 8.
  static constexpr int kPack = sizeof(W) == 2 && sizeof(S) == 2 && sizeof(G) == 2 ? 8 : kPackSize<A>;
  W* kept;
  T* rounded;
  G* gradient;
  S* m;
  S* v;
  const A* norm;
  const A* hyper;
  const std::int32_t* bad;
  std::int64_t elements;
};

template <class A>
struct Constants {
  double weight_decay;
  A rest1, beta2, rest2, epsilon;
  std::uint64_t seed;
  std::uint32_t stream;
};

// The numbers of a step, as the elements need them.
template <class A>
struct Step {
  A clip, decay, rate, correction2;
  std::uint32_t step;

  Step() = default;
  __device__ Step(const A* hyper, A norm, double weight_decay)
      : clip(1),
        correction2(hyper[static_cast<int>(AdamwHyper::correction2)]),
        step(static_cast<std::uint32_t>(hyper[static_cast<int>(AdamwHyper::step)])) {
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

// Within 2 ulp, and without the branches of the exact ones, which are taken where a moment is 0.
__device__ inline float fast_sqrt(float value) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(value));
  return root;
}
__device__ inline double fast_sqrt(double value) { return sqrt(value); }
__device__ inline float fast_quotient(float a, float b) { return __fdividef(a, b); }
__device__ inline double fast_quotient(double a, double b) { return a / b; }

template <class Stored, class A>
__device__ Stored stored(A value, const RoundingBits& bits, int odd, int which) {
  if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
    return __ushort_as_bfloat16(round_stochastically(value, bits.get(odd, which)));
  } else {
    return value;
  }
}

// kPack elements from `at` on, which is even where kPack is.
template <int kPack, class T, class W, class S, class G>
__device__ void update(const Tensors<T, W, S, G>& p, const Constants<CudaAccumulator<T>>& c,
                       const Step<CudaAccumulator<T>>& step, bool bad, std::int64_t at) {
  using A = CudaAccumulator<T>;
  auto& all_gradients = *reinterpret_cast<Pack<G, kPack>*>(p.gradient + at);
  auto& all_m = *reinterpret_cast<Pack<S, kPack>*>(p.m + at);
  auto& all_v = *reinterpret_cast<Pack<S, kPack>*>(p.v + at);
  auto& all_kept = *reinterpret_cast<Pack<W, kPack>*>(p.kept + at);
  const Pack<G, kPack> gradient = load_streamed<G, kPack>(p.gradient + at);
  Pack<S, kPack> m = load_streamed<S, kPack>(p.m + at);
  Pack<S, kPack> v = load_streamed<S, kPack>(p.v + at);
  Pack<W, kPack> kept = load_streamed<W, kPack>(p.kept + at);
  Pack<G, kPack> zero;
#pragma unroll
  for (int k = 0; k < kPack; ++k) zero[k] = narrowed<G>(0);
  if (bad) {
    all_gradients = zero;
    return;
  }
  Pack<T, kPack> rounded;
  RoundingBits bits{};
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const std::int64_t i = at + k;
    if (Tensors<T, W, S, G>::kRandom && (k == 0 || k % 2 == 0)) {
      bits = rounding_bits(c.seed, c.stream, step.step, static_cast<std::uint64_t>(i) / 2);
    }
    const A g = widened(gradient[k]) * step.clip;
    const A old_m = widened(m[k]);
    const A new_m = old_m + c.rest1 * (g - old_m);
    const A new_v = c.beta2 * widened(v[k]) + c.rest2 * g * g;
    const A change = fast_quotient(step.rate * new_m, fast_sqrt(new_v) * step.correction2 + c.epsilon);
    const A w = widened(kept[k]) * step.decay - change;
    const int odd = kPack > 1 ? k % 2 : static_cast<int>(i % 2);  // a constant where it can be: bits stay in registers
    kept[k] = stored<W>(w, bits, odd, 0);
    m[k] = stored<S>(new_m, bits, odd, 1);
    v[k] = stored<S>(new_v, bits, odd, 2);
    rounded[k] = narrowed<T>(w);
  }
  // A store to what is still being loaded would wait for it in the memory system, and what comes behind with it.
  all_gradients = zero;
  all_m = m;
  all_v = v;
  all_kept = kept;
  if constexpr (!std::is_same_v<T, W>) *reinterpret_cast<Pack<T, kPack>*>(p.rounded + at) = rounded;
}

template <class T, class W, class S, class G>
__global__ void __launch_bounds__(kThreads) adamw_kernel(Tensors<T, W, S, G> p, Constants<CudaAccumulator<T>> c) {
  constexpr int kPack = Tensors<T, W, S, G>::kPack;
  // Read once a block, for many packs: if every warp asked for these few numbers, all of the chip would wait for the
  // one piece of the cache that holds them.
  __shared__ bool shared_bad;
  __shared__ Step<CudaAccumulator<T>> shared_step;
  if (threadIdx.x == 0) {
    shared_bad = *p.bad != 0;
    shared_step = Step<CudaAccumulator<T>>(p.hyper, *p.norm, c.weight_decay);
  }
  __syncthreads();
  const bool bad = shared_bad;
  const Step<CudaAccumulator<T>> step = shared_step;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kPack;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  for (; at + kPack <= p.elements; at += stride) update<kPack>(p, c, step, bad, at);
  for (; at < p.elements; ++at) update<1>(p, c, step, bad, at);
}

template <class T, class W, class S, class G>
void launch(const KernelCall& call, W* kept, T* rounded) {
  using A = CudaAccumulator<T>;
  using All = Tensors<T, W, S, G>;
  const auto& a = call.attributes_as<AdamwAttributes>();
  const All tensors{.kept = kept,
                    .rounded = rounded,
                    .gradient = cuda_data<G>(call.out(1)),
                    .m = cuda_data<S>(call.out(2)),
                    .v = cuda_data<S>(call.out(3)),
                    .norm = cuda_data<A>(call.in(5)),
                    .hyper = cuda_data<A>(call.in(6)),
                    .bad = cuda_data<std::int32_t>(call.in(7)),
                    .elements = call.out(0).elements()};
  const Constants<A> constants{.weight_decay = a.weight_decay,
                               .rest1 = static_cast<A>(1.0 - a.beta1),
                               .beta2 = static_cast<A>(a.beta2),
                               .rest2 = static_cast<A>(1.0 - a.beta2),
                               .epsilon = static_cast<A>(a.epsilon),
                               .seed = static_cast<std::uint64_t>(a.seed),
                               .stream = static_cast<std::uint32_t>(a.stream)};
  const std::int64_t blocks = std::min(ceil_div(tensors.elements, kThreads * All::kPack), kMostBlocks);
  if (blocks == 0) return;
  adamw_kernel<T, W, S, G><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(tensors, constants);
  check_launch("adamw");
}

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  T* weight = cuda_data<T>(call.out(0));
  const auto with_types = [&]<class S, class G>() {
    if (call.in(4)) {
      launch<T, A, S, G>(call, cuda_data<A>(call.out(4)), weight);
    } else {
      launch<T, T, S, G>(call, weight, nullptr);
    }
  };
  const bool narrow_gradient = call.in(1).dtype() == DType::bf16;
  const bool narrow_states = call.in(2).dtype() == DType::bf16;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (narrow_states && narrow_gradient) return with_types.template operator()<T, T>();
    if (narrow_states) return with_types.template operator()<T, A>();
    if (narrow_gradient) return with_types.template operator()<A, T>();
  }
  with_types.template operator()<A, A>();
}

}  // namespace

void register_adamw_cuda(KernelRegistry& registry) {
  registry.add(
      "adamw", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
}

}  // namespace hone
