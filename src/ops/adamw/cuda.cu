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

// Updates a pack and stores it, with zeros as its gradient if that is to be cleared.
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
    if (kRandom) bits = rounding_bits(c.seed, c.stream, step.step, static_cast<std::uint64_t>(c.first + at + k) / 2);
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
  if (c.clears) store_pack(p.gradient + at, count, zero);
  store_pack(p.m + at, count, out.m);
  store_pack(p.v + at, count, out.v);
  store_pack(p.kept + at, count, out.kept);
  if constexpr (!std::is_same_v<T, W>) store_pack(p.rounded + at, count, rounded);
}

// The part of a tensor that block `block` of it has.
template <class T, class W, class S, class G>
__device__ void update_part(const Tensors<T, W, S, G>& p, const AdamwConstants<CudaAccumulator<T>>& c, int block) {
  constexpr int kPack = Tensors<T, W, S, G>::kPack;
  using Numbers = AdamwStepNumbers<CudaAccumulator<T>>;
  __shared__ Numbers shared_step;
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kWave) * kThreads * kPack;
  const int wave = block / kWave;
  const int place = block % kWave;
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
    if (!c.clears) return;
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
__global__ void __launch_bounds__(kThreads, kResident)
    adamw_kernel(Tensors<T, W, S, G> p, AdamwConstants<CudaAccumulator<T>> c) {
  update_part(p, c, static_cast<int>(blockIdx.x));
}

// Tensors of a launch for small tensors, of which each alone would take the time of a launch. Blocks first_block[i] ..
// first_block[i + 1] - 1 have tensor i.
template <class T, class W, class S, class G>
struct Batch {
  static constexpr int kMost = 32;
  Tensors<T, W, S, G> tensors[kMost];
  AdamwConstants<CudaAccumulator<T>> constants[kMost];
  int first_block[kMost + 1];
  int count;
};

template <class T, class W, class S, class G>
__global__ void __launch_bounds__(kThreads, kResident) adamw_batch_kernel(const __grid_constant__ Batch<T, W, S, G> p) {
  const int block = static_cast<int>(blockIdx.x);
  int which = 0;
  for (int step = p.kMost / 2; step > 0; step /= 2) {
    if (which + step < p.count && p.first_block[which + step] <= block) which += step;
  }
  update_part(p.tensors[which], p.constants[which], block - p.first_block[which]);
}

// Launches the updates of tensors with the same dtypes.
template <class T, class W, class S, class G>
class Updates {
 public:
  explicit Updates(cudaStream_t stream) : stream_(stream) {}

  void add(const KernelCall& call) {
    using A = CudaAccumulator<T>;
    using All = Tensors<T, W, S, G>;
    const auto& attributes = call.attributes_as<AdamwAttributes>();
    const TensorView& whole = call.out(AdamwOut::weight);
    const TensorView& gradient = call.out(AdamwOut::gradient);
    T* weight = cuda_data<T>(whole) + attributes.start_in(whole.elements());
    All tensors{.gradient = cuda_data<G>(gradient) + attributes.start_in(gradient.elements()),
                .m = cuda_data<S>(call.out(AdamwOut::m)),
                .v = cuda_data<S>(call.out(AdamwOut::v)),
                .norm = cuda_data<A>(call.in(AdamwIn::norm)),
                .hyper = cuda_data<A>(call.in(AdamwIn::hyper)),
                .bad = cuda_data<std::int32_t>(call.in(AdamwIn::bad)),
                .elements = call.out(AdamwOut::m).elements()};
    if constexpr (std::is_same_v<T, W>) {
      tensors.kept = weight;
      tensors.rounded = nullptr;
    } else {
      tensors.kept = cuda_data<W>(call.out(AdamwOut::master));
      tensors.rounded = weight;
    }
    const std::int64_t packs = ceil_div(tensors.elements, kThreads * All::kPack);  // for a whole block each
    const auto blocks = static_cast<int>(std::min(packs, ceil_div(packs, kRounds * kWave) * kWave));
    if (blocks == 0) return;
    const AdamwConstants<A> constants(call.attributes_as<AdamwAttributes>());
    if (blocks >= kWave) {
      adamw_kernel<T, W, S, G><<<static_cast<unsigned>(blocks), kThreads, 0, stream_>>>(tensors, constants);
      check_launch("adamw");
      return;
    }
    batch_.tensors[batch_.count] = tensors;
    batch_.constants[batch_.count] = constants;
    batch_.first_block[batch_.count + 1] = batch_.first_block[batch_.count] + blocks;
    if (++batch_.count == batch_.kMost) launch_batch();
  }
  // Launches the small tensors added since the last call.
  void launch_batch() {
    const auto blocks = static_cast<unsigned>(batch_.first_block[batch_.count]);
    if (batch_.count == 1) {
      adamw_kernel<T, W, S, G><<<blocks, kThreads, 0, stream_>>>(batch_.tensors[0], batch_.constants[0]);
    } else if (batch_.count > 1) {
      adamw_batch_kernel<T, W, S, G><<<blocks, kThreads, 0, stream_>>>(batch_);
    }
    if (batch_.count > 0) check_launch("adamw");
    batch_.count = 0;
  }

 private:
  cudaStream_t stream_;
  Batch<T, W, S, G> batch_{};
};

// Calls body.operator()<T, W, S, G>() with the types of a call's tensors.
template <class Body>
void with_types(const KernelCall& call, const Body& body) {
  for_cuda_floating(call.in(AdamwIn::weight).dtype(), [&]<class T>() {
    using A = CudaAccumulator<T>;
    const bool narrow_gradient = call.in(AdamwIn::gradient).dtype() == DType::kBf16;
    const bool narrow_states = call.in(AdamwIn::m).dtype() == DType::kBf16;
    const auto with = [&]<class S, class G>() {
      if (call.in(AdamwIn::master)) {
        body.template operator()<T, A, S, G>();
      } else {
        body.template operator()<T, T, S, G>();
      }
    };
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      if (narrow_states && narrow_gradient) return with.template operator()<T, T>();
      if (narrow_states) return with.template operator()<T, A>();
      if (narrow_gradient) return with.template operator()<A, T>();
    }
    with.template operator()<A, A>();
  });
}

// True if with_types() gives both calls the same types.
bool same_types(const KernelCall& a, const KernelCall& b) {
  const auto same = [&](std::size_t input) { return a.in(input).dtype() == b.in(input).dtype(); };
  return same(AdamwIn::weight) && same(AdamwIn::gradient) && same(AdamwIn::m) &&
         static_cast<bool>(a.in(AdamwIn::master)) == static_cast<bool>(b.in(AdamwIn::master));
}

void run_together(std::span<const KernelCall> calls) {
  while (!calls.empty()) {
    const auto other = std::ranges::find_if(calls, [&](const KernelCall& call) { return !same_types(call, calls[0]); });
    const auto alike = calls.first(static_cast<std::size_t>(other - calls.begin()));
    with_types(calls[0], [&]<class T, class W, class S, class G>() {
      Updates<T, W, S, G> updates(stream_of(calls[0]));
      for (const KernelCall& call : alike) updates.add(call);
      updates.launch_batch();
    });
    calls = calls.subspan(alike.size());
  }
}

void forward(const KernelCall& call) { run_together({&call, 1}); }

}  // namespace

void register_adamw_cuda(KernelRegistry& registry) {
  registry.add("adamw", DeviceKind::kCuda, {.run = forward, .workspace = {}, .run_together = run_together});
}

}  // namespace hone
