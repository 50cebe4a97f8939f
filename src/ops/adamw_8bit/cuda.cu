// A warp takes a block of the states: its lanes hold eight elements each.
#include <algorithm>

#include "ops/adamw/step.cuh"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kPack = static_cast<int>(kStateBlock) / 32;  // also the elements that share random bits
constexpr std::int64_t kMostBlocks = 132 * 4;              // as many as run at once

template <int kFirst>
__device__ const DynamicMap<kFirst> kMap{};

template <class T, class G>
struct Tensors {
  T* weight;
  G* gradient;
  std::uint8_t* m;
  std::uint8_t* v;
  float* m_scale;
  float* v_scale;
  const float* norm;
  const float* hyper;
  const std::int32_t* bad;
  std::int64_t elements;
};

// Elements from `from` on, of which `count` exist; 0 behind them.
template <class T>
__device__ Pack<T, kPack> load(const T* from, int count) {
  constexpr int kSize = std::min(kPack, kPackSize<T>);
  Pack<T, kPack> pack{};
  if (count >= kPack) {
#pragma unroll
    for (int i = 0; i < kPack; i += kSize) {
      const Pack<T, kSize> part = load_streamed<T, kSize>(from + i);
#pragma unroll
      for (int k = 0; k < kSize; ++k) pack[i + k] = part[k];
    }
    return pack;
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    if (k < count) pack[k] = from[k];
  }
  return pack;
}

template <class T>
__device__ void store(T* to, int count, const Pack<T, kPack>& pack) {
  constexpr int kSize = std::min(kPack, kPackSize<T>);
  if (count >= kPack) {
#pragma unroll
    for (int i = 0; i < kPack; i += kSize) {
      Pack<T, kSize> part;
#pragma unroll
      for (int k = 0; k < kSize; ++k) part[k] = pack[i + k];
      *reinterpret_cast<Pack<T, kSize>*>(to + i) = part;
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    if (k < count) to[k] = pack[k];
  }
}

struct Maps {
  DynamicMap<1> signs;
  DynamicMap<2> magnitudes;
};

template <class T, class G>
__device__ void update(const Tensors<T, G>& p, const AdamwConstants<float>& c, const AdamwStepNumbers<float>& step,
                       const Maps& maps, std::int64_t block) {
  const std::int64_t at = block * kStateBlock + static_cast<int>(threadIdx.x) % 32 * kPack;
  const std::int64_t left = p.elements - at;
  const int count = left < kPack ? static_cast<int>(left) : kPack;
  const Pack<G, kPack> gradient = load(p.gradient + at, count);
  Pack<T, kPack> weight = load(p.weight + at, count);
  Pack<std::uint8_t, kPack> m = load(p.m + at, count);
  Pack<std::uint8_t, kPack> v = load(p.v + at, count);
  const float m_scale = p.m_scale[block];
  const float v_scale = p.v_scale[block];
  float new_m[kPack];
  float new_v[kPack];
  float largest_m = 0;
  float largest_v = 0;
  RoundingBits bits{};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    bits = rounding_bits(c.seed, c.stream, step.step, static_cast<std::uint64_t>(at) / kPack);
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const float g = widened(gradient[k]) * step.clip;
    const int index = static_cast<int>(m[k]) - kZeroCode;
    const float magnitude = maps.signs.values[static_cast<std::size_t>(abs(index))];
    new_m[k] = c.next_m((index < 0 ? -magnitude : magnitude) * m_scale, g);
    new_v[k] = c.next_v(maps.magnitudes.values[v[k]] * v_scale, g);
    weight[k] = rounded_for<T>(step.next_weight(widened(weight[k]), new_m[k], new_v[k], c.epsilon), bits.piece(k));
    if (k < count) {
      largest_m = fmaxf(largest_m, fabsf(new_m[k]));
      largest_v = fmaxf(largest_v, new_v[k]);
    }
  }
  largest_m = warp_max(largest_m);
  largest_v = warp_max(largest_v);
  const float inverse_m = inverse_scale(largest_m);
  const float inverse_v = inverse_scale(largest_v);
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    m[k] = signed_code(maps.signs.nearest(fabsf(new_m[k]) * inverse_m), new_m[k] < 0);
    v[k] = static_cast<std::uint8_t>(maps.magnitudes.nearest(new_v[k] * inverse_v));
  }
  store(p.gradient + at, count, Pack<G, kPack>{});
  store(p.weight + at, count, weight);
  store(p.m + at, count, m);
  store(p.v + at, count, v);
  if (threadIdx.x % 32 == 0) {
    p.m_scale[block] = inverse_m == 0 ? 0.0f : largest_m;
    p.v_scale[block] = inverse_v == 0 ? 0.0f : largest_v;
  }
}

template <class Map>
__device__ void copy_map(Map& to, const Map& from) {
  static_assert(sizeof(Map) % 4 == 0);
  const auto* words = reinterpret_cast<const std::uint32_t*>(&from);
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(Map) / 4); i += kThreads) {
    reinterpret_cast<std::uint32_t*>(&to)[i] = words[i];
  }
}

template <class T, class G>
__global__ void __launch_bounds__(kThreads) adamw_8bit_kernel(Tensors<T, G> p, AdamwConstants<float> c) {
  __shared__ AdamwStepNumbers<float> shared_step;
  __shared__ alignas(Maps) unsigned char shared_maps[sizeof(Maps)];
  Maps& maps = *reinterpret_cast<Maps*>(shared_maps);
  if (threadIdx.x == 0) shared_step = AdamwStepNumbers<float>(p.hyper, p.norm, p.bad, c.weight_decay);
  copy_map(maps.signs, kMap<1>);
  copy_map(maps.magnitudes, kMap<2>);
  __syncthreads();
  const AdamwStepNumbers<float> step = shared_step;
  const std::int64_t blocks = scales_of(p.elements);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (step.bad) {
    for (; block < blocks; block += stride) {
      const std::int64_t at = block * kStateBlock + static_cast<int>(threadIdx.x) % 32 * kPack;
      const std::int64_t left = p.elements - at;
      store(p.gradient + at, left < kPack ? static_cast<int>(left) : kPack, Pack<G, kPack>{});
    }
    return;
  }
  for (; block < blocks; block += stride) update(p, c, step, maps, block);
}

template <class T, class G>
void launch(const KernelCall& call) {
  const Tensors<T, G> tensors{.weight = cuda_data<T>(call.out(0)),
                              .gradient = cuda_data<G>(call.out(1)),
                              .m = cuda_data<std::uint8_t>(call.out(2)),
                              .v = cuda_data<std::uint8_t>(call.out(3)),
                              .m_scale = cuda_data<float>(call.out(4)),
                              .v_scale = cuda_data<float>(call.out(5)),
                              .norm = cuda_data<float>(call.in(6)),
                              .hyper = cuda_data<float>(call.in(7)),
                              .bad = cuda_data<std::int32_t>(call.in(8)),
                              .elements = call.out(0).elements()};
  const std::int64_t blocks = std::min(ceil_div(scales_of(tensors.elements), kWarps), kMostBlocks);
  if (blocks == 0) return;
  adamw_8bit_kernel<T, G><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
      tensors, AdamwConstants<float>(call.attributes_as<AdamwAttributes>()));
  check_launch("adamw_8bit");
}

void forward(const KernelCall& call) {
  const bool narrow_gradient = call.in(1).dtype() == DType::bf16;
  if (call.in(0).dtype() == DType::f32) return launch<float, float>(call);
  if (narrow_gradient) return launch<__nv_bfloat16, __nv_bfloat16>(call);
  launch<__nv_bfloat16, float>(call);
}

}  // namespace

void register_adamw_8bit_cuda(KernelRegistry& registry) { registry.add("adamw_8bit", DeviceKind::cuda, {forward, {}}); }

}  // namespace hone
