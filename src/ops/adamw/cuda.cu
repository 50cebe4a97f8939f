#include <algorithm>

#include "ops/adamw/adamw.h"
#include "ops/adamw/packs.cuh"
#include "ops/adamw/step.cuh"
#include "ops/registry.h"
#include "ops/slices.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 3;                      // blocks of an SM
constexpr int kWave = kReductionSms * kResident;  // blocks that run concurrently
// Packs of a thread, one wave of packs apart, so that concurrent accesses are close together. A block ends after them
// and a block of the next wave starts on the SM that is free first, because SMs are not equally fast.
constexpr int kRounds = 4;

// Operands of the kernel. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` is null.
template <class T, class W, class S, class G>
struct Tensors {
  using A = CudaAccumulator<T>;
  static constexpr bool kRandom = std::is_same_v<W, __nv_bfloat16> || std::is_same_v<S, __nv_bfloat16>;
  // Elements of a pack: 16 bytes of the widest type, at most 8 elements.
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

// A thread's pack of each operand.
template <class T, class W, class S, class G>
struct Held {
  static constexpr int kPack = Tensors<T, W, S, G>::kPack;
  Pack<G, kPack> gradient;
  Pack<S, kPack> m;
  Pack<S, kPack> v;
  Pack<W, kPack> kept;
};

// Loads the pack at element `at`, of which `count` elements exist.
template <class T, class W, class S, class G>
__device__ void load(Held<T, W, S, G>& held, const Tensors<T, W, S, G>& p, std::int64_t at, int count) {
  load_pack(held.gradient, p.gradient + at, count, narrowed<G>(0));
  load_pack(held.m, p.m + at, count, narrowed<S>(0));
  load_pack(held.v, p.v + at, count, narrowed<S>(0));
  load_pack(held.kept, p.kept + at, count, narrowed<W>(0));
}

// Updates a pack and stores it, with zeros as its gradient.
template <class T, class W, class S, class G>
__device__ void update(const Held<T, W, S, G>& held, const Tensors<T, W, S, G>& p,
                       const AdamwConstants<CudaAccumulator<T>>& c, const AdamwStepNumbers<CudaAccumulator<T>>& step,
                       std::int64_t at, int count) {
  using A = CudaAccumulator<T>;
  constexpr int kPack = Tensors<T, W, S, G>::kPack;
  constexpr bool kRandom = Tensors<T, W, S, G>::kRandom;
  Held<T, W, S, G> out;
  Pack<T, kPack> rounded;
#pragma unroll
  for (int k = 0; k < kPack; k += 2) {
    RoundingBits bits{};
    if (kRandom) bits = rounding_bits(c.seed, c.stream, step.step, static_cast<std::uint64_t>(at + k) / 2);
    A g[2];
    A m[2];
    A v[2];
    A w[2];
    widen_pair(held.gradient, k, g);
    widen_pair(held.m, k, m);
    widen_pair(held.v, k, v);
    widen_pair(held.kept, k, w);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      g[odd] *= step.clip;
      m[odd] = c.next_m(m[odd], g[odd]);
      v[odd] = c.next_v(v[odd], g[odd]);
      w[odd] = step.next_weight(w[odd], m[odd], v[odd], c.epsilon);
      rounded[k + odd] = narrowed<T>(w[odd]);
    }
    const auto round = [&]<bool kAny>() {
      round_pair<kAny>(out.kept, k, w, bits.get(0, 0), bits.get(1, 0));
      round_pair<kAny>(out.m, k, m, bits.get(0, 1), bits.get(1, 1));
      round_pair<kAny>(out.v, k, v, bits.get(0, 2), bits.get(1, 2));
    };
    round.template operator()<false>();
    if (kRandom && isnan((w[0] + w[1]) + (m[0] + m[1]) + (v[0] + v[1]))) round.template operator()<true>();
  }
  // All stores come after the loads: a store to a line that is still being loaded waits for it in the memory system,
  // and delays the stores after it.
  Pack<G, kPack> zero;
#pragma unroll
  for (int k = 0; k < kPack; ++k) zero[k] = narrowed<G>(0);
  store_pack(p.gradient + at, count, zero);
  store_pack(p.m + at, count, out.m);
  store_pack(p.v + at, count, out.v);
  store_pack(p.kept + at, count, out.kept);
  if constexpr (!std::is_same_v<T, W>) store_pack(p.rounded + at, count, rounded);
}

template <class T, class W, class S, class G>
__global__ void __launch_bounds__(kThreads, kResident)
    adamw_kernel(Tensors<T, W, S, G> p, AdamwConstants<CudaAccumulator<T>> c) {
  constexpr int kPack = Tensors<T, W, S, G>::kPack;
  using Numbers = AdamwStepNumbers<CudaAccumulator<T>>;
  __shared__ Numbers shared_step;
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kWave) * kThreads * kPack;
  const int wave = static_cast<int>(blockIdx.x) / kWave;
  const int place = static_cast<int>(blockIdx.x) % kWave;
  std::int64_t at = wave * kRounds * kStride + (static_cast<std::int64_t>(place) * kThreads + threadIdx.x) * kPack;
  const std::int64_t after = at + kRounds * kStride;
  const std::int64_t end = after < p.elements ? after : p.elements;
  const auto count = [&] { return end - at < kPack ? static_cast<int>(end - at) : kPack; };
  // The next pack is loaded while the current one is computed; the first one while the step's constants are read.
  Held<T, W, S, G> next;
  if (at + kPack <= end) load(next, p, at, kPack);
  if (threadIdx.x == 0) shared_step = Numbers(p.hyper, p.norm, p.bad, c.weight_decay);
  __syncthreads();
  const Numbers step = shared_step;
  if (step.bad) {
    Pack<G, kPack> zero;
#pragma unroll
    for (int k = 0; k < kPack; ++k) zero[k] = narrowed<G>(0);
    for (; at < end; at += kStride) store_pack(p.gradient + at, count(), zero);
    return;
  }
  for (; at + kPack <= end; at += kStride) {
    const Held<T, W, S, G> held = next;
    if (at + kStride + kPack <= end) load(next, p, at + kStride, kPack);
    update(held, p, c, step, at, kPack);
  }
  if (at < end) {
    Held<T, W, S, G> last;
    load(last, p, at, count());
    update(last, p, c, step, at, count());
  }
}

template <class T, class W, class S, class G>
void launch(const KernelCall& call, W* kept, T* rounded) {
  using A = CudaAccumulator<T>;
  using All = Tensors<T, W, S, G>;
  const All tensors{.kept = kept,
                    .rounded = rounded,
                    .gradient = cuda_data<G>(call.out(AdamwOut::gradient)),
                    .m = cuda_data<S>(call.out(AdamwOut::m)),
                    .v = cuda_data<S>(call.out(AdamwOut::v)),
                    .norm = cuda_data<A>(call.in(AdamwIn::norm)),
                    .hyper = cuda_data<A>(call.in(AdamwIn::hyper)),
                    .bad = cuda_data<std::int32_t>(call.in(AdamwIn::bad)),
                    .elements = call.out(AdamwOut::weight).elements()};
  const std::int64_t packs = ceil_div(tensors.elements, kThreads * All::kPack);  // for a whole block each
  const std::int64_t blocks = std::min(packs, ceil_div(packs, kRounds * kWave) * kWave);
  if (blocks == 0) return;
  adamw_kernel<T, W, S, G><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
      tensors, AdamwConstants<A>(call.attributes_as<AdamwAttributes>()));
  check_launch("adamw");
}

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  T* weight = cuda_data<T>(call.out(AdamwOut::weight));
  const auto with_types = [&]<class S, class G>() {
    if (call.in(AdamwIn::master)) {
      launch<T, A, S, G>(call, cuda_data<A>(call.out(AdamwOut::master)), weight);
    } else {
      launch<T, T, S, G>(call, weight, nullptr);
    }
  };
  const bool narrow_gradient = call.in(AdamwIn::gradient).dtype() == DType::bf16;
  const bool narrow_states = call.in(AdamwIn::m).dtype() == DType::bf16;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (narrow_states && narrow_gradient) return with_types.template operator()<T, T>();
    if (narrow_states) return with_types.template operator()<T, A>();
    if (narrow_gradient) return with_types.template operator()<A, T>();
  }
  with_types.template operator()<A, A>();
}

}  // namespace

void register_adamw_cuda(KernelRegistry& registry) {
  registry.add("adamw", DeviceKind::cuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(AdamwIn::weight).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
