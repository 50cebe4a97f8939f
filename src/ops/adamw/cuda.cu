#include <algorithm>

#include "ops/adamw/step.cuh"
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

// kPack elements from `at` on, which is even where kPack is.
template <int kPack, class T, class W, class S, class G>
__device__ void update(const Tensors<T, W, S, G>& p, const AdamwConstants<CudaAccumulator<T>>& c,
                       const AdamwStepNumbers<CudaAccumulator<T>>& step, std::int64_t at) {
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
  if (step.bad) {
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
    const A new_m = c.next_m(widened(m[k]), g);
    const A new_v = c.next_v(widened(v[k]), g);
    const A w = step.next_weight(widened(kept[k]), new_m, new_v, c.epsilon);
    const int odd = kPack > 1 ? k % 2 : static_cast<int>(i % 2);  // a constant where it can be: bits stay in registers
    kept[k] = rounded_for<W>(w, bits.get(odd, 0));
    m[k] = rounded_for<S>(new_m, bits.get(odd, 1));
    v[k] = rounded_for<S>(new_v, bits.get(odd, 2));
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
__global__ void __launch_bounds__(kThreads) adamw_kernel(Tensors<T, W, S, G> p, AdamwConstants<CudaAccumulator<T>> c) {
  constexpr int kPack = Tensors<T, W, S, G>::kPack;
  using Numbers = AdamwStepNumbers<CudaAccumulator<T>>;
  __shared__ Numbers shared_step;
  if (threadIdx.x == 0) shared_step = Numbers(p.hyper, p.norm, p.bad, c.weight_decay);
  __syncthreads();
  const Numbers step = shared_step;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kPack;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  for (; at + kPack <= p.elements; at += stride) update<kPack>(p, c, step, at);
  for (; at < p.elements; ++at) update<1>(p, c, step, at);
}

template <class T, class W, class S, class G>
void launch(const KernelCall& call, W* kept, T* rounded) {
  using A = CudaAccumulator<T>;
  using All = Tensors<T, W, S, G>;
  const All tensors{.kept = kept,
                    .rounded = rounded,
                    .gradient = cuda_data<G>(call.out(1)),
                    .m = cuda_data<S>(call.out(2)),
                    .v = cuda_data<S>(call.out(3)),
                    .norm = cuda_data<A>(call.in(5)),
                    .hyper = cuda_data<A>(call.in(6)),
                    .bad = cuda_data<std::int32_t>(call.in(7)),
                    .elements = call.out(0).elements()};
  const std::int64_t blocks = std::min(ceil_div(tensors.elements, kThreads * All::kPack), kMostBlocks);
  if (blocks == 0) return;
  adamw_kernel<T, W, S, G><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
      tensors, AdamwConstants<A>(call.attributes_as<AdamwAttributes>()));
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
