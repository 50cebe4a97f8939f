#include <algorithm>

#include "ops/adamw/step.cuh"
#include "ops/elementwise.cuh"
#include "ops/muon/muon.h"
#include "ops/muon/step.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kResident = 8;  // blocks of an SM

// Calls body.operator()<kSize>(at) for a thread's packs of kPack elements, one grid of packs apart, and for single
// elements at the end.
template <int kPack, class Body>
__device__ void for_packs(std::int64_t elements, const Body& body) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kPack;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  for (; at + kPack <= elements; at += stride) body.template operator()<kPack>(at);
  for (; at < elements; ++at) body.template operator()<1>(at);
}

unsigned blocks_for(const KernelCall& call, std::int64_t elements, int pack) {
  return static_cast<unsigned>(std::min(ceil_div(elements, static_cast<std::int64_t>(kThreads) * pack),
                                        kResident * cuda_device_of(call).sm_count()));
}

// Calls body.operator()<kPack>(), where kPack is the largest pack whose accesses are aligned `first` elements into a
// tensor: 16 bytes, or one element.
template <class A, class Body>
void with_aligned_pack(std::int64_t first, const Body& body) {
  if (first % kPackSize<A> == 0) {
    body.template operator()<kPackSize<A>>();
  } else {
    body.template operator()<1>();
  }
}

template <class G, int kPack>
__global__ void __launch_bounds__(kThreads)
    momentum_kernel(G* gradients, CudaAccumulator<G>* momenta, CudaAccumulator<G>* directions,
                    const CudaAccumulator<G>* norm, const CudaAccumulator<G>* hyper, const std::int32_t* is_bad,
                    std::int64_t elements, double beta, bool nesterov) {
  using A = CudaAccumulator<G>;
  const MuonMomentumNumbers<A> step(beta, nesterov, hyper, *norm);
  const bool bad = *is_bad != 0;
  for_packs<kPack>(elements, [&]<int kSize>(std::int64_t at) {
    Pack<G, kSize> gradient = load_streamed<G, kSize>(gradients + at);
    Pack<A, kSize> momentum = load_streamed<A, kSize>(momenta + at);
    Pack<A, kSize> direction;
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const A g = widened(gradient[k]) * step.clip;
      momentum[k] = step.next_momentum(momentum[k], g);
      direction[k] = bad ? A(0) : step.direction(momentum[k], g);
      gradient[k] = narrowed<G>(0);
    }
    *reinterpret_cast<Pack<G, kSize>*>(gradients + at) = gradient;
    if (!bad) *reinterpret_cast<Pack<A, kSize>*>(momenta + at) = momentum;
    *reinterpret_cast<Pack<A, kSize>*>(directions + at) = direction;
  });
}

template <class G>
void momentum(const KernelCall& call) {
  using A = CudaAccumulator<G>;
  const auto& attributes = call.attributes_as<MuonMomentumAttributes>();
  const std::int64_t first = attributes.first_row * call.out(MuonMomentumOut::gradient).row_size();
  const std::int64_t elements = call.out(MuonMomentumOut::direction).elements();
  if (elements == 0) return;
  with_aligned_pack<A>(first, [&]<int kPack>() {
    momentum_kernel<G, kPack><<<blocks_for(call, elements, kPack), kThreads, 0, stream_of(call)>>>(
        cuda_data<G>(call.out(MuonMomentumOut::gradient)) + first,
        cuda_data<A>(call.out(MuonMomentumOut::momentum)) + first, cuda_data<A>(call.out(MuonMomentumOut::direction)),
        cuda_data<A>(call.in(MuonMomentumIn::norm)), cuda_data<A>(call.in(MuonMomentumIn::hyper)),
        cuda_data<std::int32_t>(call.in(MuonMomentumIn::bad)), elements, attributes.momentum, attributes.nesterov);
  });
  check_launch("muon_momentum");
}

template <class T>
struct Unit {
  const CudaAccumulator<T>* norm;
  CudaAccumulator<T> epsilon;
  __device__ T operator()(CudaAccumulator<T> x) const {
    const CudaAccumulator<T> divisor = *norm > epsilon ? *norm : epsilon;
    return narrowed<T>(x / divisor);
  }
};

template <class T>
void unit(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const auto epsilon = static_cast<A>(call.attributes_as<MuonUnitAttributes>().epsilon);
  launch_elementwise<T, Unit<T>, A>(call, cuda_data<T>(call.out(0)), {cuda_data<A>(call.in(MuonUnitIn::norm)), epsilon},
                                    cuda_data<A>(call.in(MuonUnitIn::x)));
}

template <class T, class Y>
struct Combination {
  CudaAccumulator<T> a, b;
  __device__ T operator()(T x, Y y) const { return narrowed<T>(a * widened(x) + b * widened(y)); }
};

template <class T, class Y>
void combine(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const auto& attributes = call.attributes_as<MuonCombineAttributes>();
  launch_elementwise<T, Combination<T, Y>, T, Y>(
      call, cuda_data<T>(call.out(0)), {static_cast<A>(attributes.a), static_cast<A>(attributes.b)},
      cuda_data<T>(call.in(MuonCombineIn::x)), cuda_data<Y>(call.in(MuonCombineIn::y)));
}

template <class T>
void combine(const KernelCall& call) {
  if (call.in(MuonCombineIn::y).dtype() == call.in(MuonCombineIn::x).dtype()) {
    combine<T, T>(call);
  } else {
    combine<T, CudaAccumulator<T>>(call);
  }
}

// Moves the rows of a matrix. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is
// the weight and `rounded` is null. All pointers begin `first` elements into the block, at the matrix's first row.
template <class T, class W, int kPack>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(W* kept, T* rounded, const T* moves, const CudaAccumulator<T>* hyper, const std::int32_t* is_bad,
                 std::int64_t first, std::int64_t elements, MuonApplyAttributes attributes) {
  using A = CudaAccumulator<T>;
  if (*is_bad != 0) return;
  const MuonApplyNumbers<A> step(attributes, hyper);
  for_packs<kPack>(elements, [&]<int kSize>(std::int64_t at) {
    const Pack<T, kSize> move = load_streamed<T, kSize>(moves + at);
    Pack<W, kSize> weight = load_streamed<W, kSize>(kept + at);
    Pack<T, kSize> narrow;
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const A w = step.next_weight(widened(weight[k]), widened(move[k]));
      std::uint32_t bits = 0;
      if constexpr (std::is_same_v<W, __nv_bfloat16>) {
        const auto i = static_cast<std::uint64_t>(first + at + k);
        bits = rounding_bits(step.seed, step.stream, step.step, i / 2).get(static_cast<int>(i % 2), 0);
      }
      weight[k] = rounded_for<W>(w, bits);
      narrow[k] = narrowed<T>(w);
    }
    *reinterpret_cast<Pack<W, kSize>*>(kept + at) = weight;
    if constexpr (!std::is_same_v<T, W>) *reinterpret_cast<Pack<T, kSize>*>(rounded + at) = narrow;
  });
}

template <class T, class W>
void launch_apply(const KernelCall& call, W* kept, T* rounded) {
  using A = CudaAccumulator<T>;
  const auto& attributes = call.attributes_as<MuonApplyAttributes>();
  const std::int64_t first = attributes.first_row * call.out(MuonApplyOut::weight).row_size();
  const std::int64_t elements = call.in(MuonApplyIn::move).elements();
  if (elements == 0) return;
  with_aligned_pack<A>(first, [&]<int kPack>() {
    apply_kernel<T, W, kPack><<<blocks_for(call, elements, kPack), kThreads, 0, stream_of(call)>>>(
        kept + first, rounded == nullptr ? nullptr : rounded + first, cuda_data<T>(call.in(MuonApplyIn::move)),
        cuda_data<A>(call.in(MuonApplyIn::hyper)), cuda_data<std::int32_t>(call.in(MuonApplyIn::bad)), first, elements,
        attributes);
  });
  check_launch("muon_apply");
}

template <class T>
void apply(const KernelCall& call) {
  T* weight = cuda_data<T>(call.out(MuonApplyOut::weight));
  if (call.in(MuonApplyIn::master)) {
    launch_apply(call, cuda_data<CudaAccumulator<T>>(call.out(MuonApplyOut::master)), weight);
  } else {
    launch_apply<T, T>(call, weight, nullptr);
  }
}

}  // namespace

void register_muon_cuda(KernelRegistry& registry) {
  const auto add = [&](std::string_view op, auto with_type) {
    registry.add(op, DeviceKind::kCuda, {std::move(with_type), {}});
  };
  add("muon_momentum", [](const KernelCall& call) {
    for_cuda_floating(call.in(MuonMomentumIn::gradient).dtype(), [&]<class T>() { momentum<T>(call); });
  });
  add("muon_unit",
      [](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { unit<T>(call); }); });
  add("muon_combine", [](const KernelCall& call) {
    for_cuda_floating(call.in(MuonCombineIn::x).dtype(), [&]<class T>() { combine<T>(call); });
  });
  add("muon_apply", [](const KernelCall& call) {
    for_cuda_floating(call.in(MuonApplyIn::weight).dtype(), [&]<class T>() { apply<T>(call); });
  });
}

}  // namespace hone
