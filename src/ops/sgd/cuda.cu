#include <algorithm>

#include "ops/adamw/step.cuh"
#include "ops/registry.h"
#include "ops/sgd/sgd.h"
#include "ops/sgd/step.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kResident = 8;  // blocks of an SM

// Operands of the kernel. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` is null. `momentum` may be null.
template <class T, class W, class G>
struct Tensors {
  using A = CudaAccumulator<T>;
  static constexpr int kPack = kPackSize<A>;
  W* kept;
  T* rounded;
  G* gradient;
  A* momentum;
  const A* norm;
  const A* hyper;
  const std::int32_t* bad;
  std::int64_t elements;
  bool clears;
};

// Updates the pack at element `at` and clears its gradient if it is to be; if `bad` is set, it does nothing else.
template <int kPack, class T, class W, class G>
__device__ void update(const Tensors<T, W, G>& p, const SgdNumbers<CudaAccumulator<T>>& step, bool bad,
                       std::int64_t at) {
  using A = CudaAccumulator<T>;
  Pack<G, kPack> gradient = load_streamed<G, kPack>(p.gradient + at);
  Pack<W, kPack> kept = load_streamed<W, kPack>(p.kept + at);
  Pack<A, kPack> momentum{};
  if (p.momentum != nullptr) momentum = load_streamed<A, kPack>(p.momentum + at);
  Pack<T, kPack> rounded;
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const std::int64_t i = at + k;
    const A before = widened(kept[k]);
    const A g = step.gradient(widened(gradient[k]), before);
    const A next = p.momentum != nullptr ? step.next_momentum(momentum[k], g) : g;
    const A w = step.next_weight(before, g, next);
    std::uint32_t bits = 0;
    if constexpr (std::is_same_v<W, __nv_bfloat16>) {
      const auto group = static_cast<std::uint64_t>(i) / 2;
      bits = rounding_bits(step.seed, step.stream, step.step, group).get(static_cast<int>(i % 2), 0);
    }
    momentum[k] = next;
    kept[k] = rounded_for<W>(w, bits);
    rounded[k] = narrowed<T>(w);
    gradient[k] = narrowed<G>(0);
  }
  if (p.clears) *reinterpret_cast<Pack<G, kPack>*>(p.gradient + at) = gradient;
  if (bad) return;
  *reinterpret_cast<Pack<W, kPack>*>(p.kept + at) = kept;
  if (p.momentum != nullptr) *reinterpret_cast<Pack<A, kPack>*>(p.momentum + at) = momentum;
  if constexpr (!std::is_same_v<T, W>) *reinterpret_cast<Pack<T, kPack>*>(p.rounded + at) = rounded;
}

template <class T, class W, class G>
__global__ void __launch_bounds__(kThreads) sgd_kernel(Tensors<T, W, G> p, SgdAttributes attributes) {
  constexpr int kPack = Tensors<T, W, G>::kPack;
  const SgdNumbers<CudaAccumulator<T>> step(attributes, p.hyper, *p.norm);
  const bool bad = *p.bad != 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kPack;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  for (; at + kPack <= p.elements; at += stride) update<kPack>(p, step, bad, at);
  for (; at < p.elements; ++at) update<1>(p, step, bad, at);
}

template <class T, class W, class G>
void launch(const KernelCall& call, W* kept, T* rounded) {
  using A = CudaAccumulator<T>;
  using All = Tensors<T, W, G>;
  const SgdAttributes& attributes = call.attributes_as<SgdAttributes>();
  const All tensors{.kept = kept,
                    .rounded = rounded,
                    .gradient = cuda_data<G>(call.out(SgdOut::gradient)),
                    .momentum = attributes.momentum != 0 ? cuda_data<A>(call.out(SgdOut::momentum)) : nullptr,
                    .norm = cuda_data<A>(call.in(SgdIn::norm)),
                    .hyper = cuda_data<A>(call.in(SgdIn::hyper)),
                    .bad = cuda_data<std::int32_t>(call.in(SgdIn::bad)),
                    .elements = call.out(SgdOut::weight).elements(),
                    .clears = attributes.clears};
  const std::int64_t blocks =
      std::min(ceil_div(tensors.elements, kThreads * All::kPack), kResident * cuda_device_of(call).sm_count());
  if (blocks == 0) return;
  sgd_kernel<T, W, G><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(tensors, attributes);
  check_launch("sgd");
}

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const std::size_t at_master = sgd_master(call.attributes_as<SgdAttributes>());
  T* weight = cuda_data<T>(call.out(SgdOut::weight));
  const auto with_gradient = [&]<class G>() {
    if (call.in(at_master)) {
      launch<T, A, G>(call, cuda_data<A>(call.out(at_master)), weight);
    } else {
      launch<T, T, G>(call, weight, nullptr);
    }
  };
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (call.in(SgdIn::gradient).dtype() == DType::kBf16) return with_gradient.template operator()<T>();
  }
  with_gradient.template operator()<A>();
}

}  // namespace

void register_sgd_cuda(KernelRegistry& registry) {
  registry.add("sgd", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(SgdIn::weight).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
