// AdamW with 8-bit moments on a GPU: one pass over weight, gradient, m, v and their scales, all in place.
//
//   elements of a weight:  | state block 0 (256) | state block 1 | ... |          m, v: u8 codes; f32 scale each
//   a warp:                | lane 0: 8 | lane 1: 8 | ... | lane 31: 8 |            one state block at a time
//   a CUDA block:          16 warps, 16 neighbouring state blocks; then those 264 x 16 = 4,224 state blocks further on
//
// 2 blocks of 512 threads to an SM, 264 to a wave of 132 SMs. A warp takes about kRounds = 7 state blocks: few enough
// for faster SMs to run more blocks, enough for the tables to pay. Registers: the 8 elements of this state block and of
// the next, which is loaded meanwhile.
//
// Shared memory, 73,732 bytes, by offset (the rest is unused):
//   0       codes of positive m: 1,537 words      8,196   codes of v: 3,073 words      65,532  entry of a NaN m
//   6,148   values of m: 256 floats               20,496  the step's numbers           65,536  codes of negative m
//   7,172   values of v: 256 floats                                                    73,728  entry of a NaN v
// The sign of m is bit 14 of its bucket's number and 2^14 words are 64 KiB, hence the distance of the tables of both
// signs: one shift and one load find the entry of any float (code_table.h).
//
// Steps:
//   1. start loading the warp's first state block; start copying the tables (cp.async); thread 0 reads the step's
//      numbers once for the block
//   2. wait for the copies, __syncthreads(): the only barrier of the block
//   3. for each state block: start loading the next; decode m and v; AdamW in f32 with the unrounded moments
//   4. round a bf16 weight stochastically with Philox bits of (seed, stream, step, element / 8); zero the gradient if
//   it
//      is to be cleared
//   5. the largest |m| and v of the 256 elements by redux.sync on the bits of the floats, which order as the floats do
//   6. encode m and v as shares of these scales; store
// If `bad` is set, only the gradient is written (zeros), if that.
//
// The result does not depend on the launch: each element's numbers follow from its own inputs, its index and the maxima
// of its state block, and a maximum does not depend on order. Waves and rounds only decide which warp does the work.
#include <algorithm>

#include "ops/adamw/packs.cuh"
#include "ops/adamw/step.cuh"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/adamw_8bit/code_table.h"
#include "ops/registry.h"
#include "ops/slices.h"

namespace hone {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kPack = static_cast<int>(kStateBlock) / 32;  // elements of a lane, which share random bits
constexpr int kResident = 2;                               // blocks of an SM
constexpr std::int64_t kWave = kReductionSms * kResident;  // blocks that run concurrently
constexpr std::int64_t kRounds = 7;                        // state blocks of a warp, approximately

// All lookup tables, in device memory; each block copies them to shared memory.
struct Tables {
  CodeTable<1> positive;
  CodeTable<1, true> negative;
  CodeTable<2> magnitudes;
  std::array<float, 256> m{};  // value of each code of m
  std::array<float, 256> v{};  // value of each code of v

  constexpr Tables() {
    constexpr DynamicMap<1> signs;
    constexpr DynamicMap<2> unsigned_map;
    for (int code = 0; code < 256; ++code) {
      const float magnitude =
          signs.values[static_cast<std::size_t>(code < kZeroCode ? kZeroCode - code : code - kZeroCode)];
      m[static_cast<std::size_t>(code)] = code < kZeroCode ? -magnitude : magnitude;
      v[static_cast<std::size_t>(code)] = unsigned_map.values[static_cast<std::size_t>(code)];
    }
  }
};

__device__ const Tables kTables{};

// Offsets in shared memory, in bytes. The sign of m is the highest bit of a bucket's number, so that the table for
// negative m is 64 KiB after that for positive m; the other tables are between them. The entry of a NaN is at the
// highest bucket number without a sign, 65,532 bytes after the start of its table.
constexpr int kPositive = 0;
constexpr int kValuesOfM = kPositive + static_cast<int>(sizeof(Tables::positive));
constexpr int kValuesOfV = kValuesOfM + static_cast<int>(sizeof(Tables::m));
constexpr int kMagnitudes = kValuesOfV + static_cast<int>(sizeof(Tables::v));
constexpr int kStep = (kMagnitudes + static_cast<int>(sizeof(Tables::magnitudes)) + 15) / 16 * 16;
constexpr int kNegative = kPositive + 65536;
constexpr int kNanOfM = kPositive + 65532;
constexpr int kNanOfV = kMagnitudes + 65532;
constexpr int kSharedBytes = kNanOfV + 4;
static_assert(kStep + static_cast<int>(sizeof(AdamwStepNumbers<float>)) <= kNanOfM);
static_assert(kNegative + static_cast<int>(sizeof(Tables::negative)) <= kNanOfV);
static_assert((CodeTable<1>::kNan >> CodeTable<1>::kDown) * 4 == 65532);

extern __shared__ __align__(16) unsigned char shared[];

template <class Number>
__device__ Number shared_at(std::uint32_t at) {
  return *reinterpret_cast<const Number*>(shared + at);
}

// Operands of the kernel.
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
  std::int64_t rounds;  // state blocks of a warp
};

// A lane's elements of a state block, and the block's scales.
template <class T, class G>
struct Held {
  Pack<G, kPack> gradient;
  Pack<T, kPack> weight;
  Pack<std::uint8_t, kPack> m;
  Pack<std::uint8_t, kPack> v;
  float m_scale;
  float v_scale;
};

// The first element of this lane in a state block.
__device__ std::int64_t first_of(std::int64_t block) {
  return block * kStateBlock + static_cast<int>(threadIdx.x) % 32 * kPack;
}

// Starts loading this lane's elements, of which `count` exist.
template <class T, class G>
__device__ void load(Held<T, G>& held, const Tensors<T, G>& p, std::int64_t block, int count) {
  const std::int64_t at = first_of(block);
  load_pack(held.gradient, p.gradient + at, count, narrowed<G>(0));
  load_pack(held.weight, p.weight + at, count, narrowed<T>(0));
  load_pack(held.m, p.m + at, count, static_cast<std::uint8_t>(kZeroCode));
  load_pack(held.v, p.v + at, count, std::uint8_t{0});
  held.m_scale = p.m_scale[block];
  held.v_scale = p.v_scale[block];
}

// The value of the k-th of eight codes, from the table at an offset in shared memory.
__device__ float value_of(int table, const std::uint32_t (&codes)[2], int k) {
  const std::uint32_t word = codes[k / 4];
  const int down = 8 * (k % 4) - 2;
  return shared_at<float>(table + ((down < 0 ? word << -down : word >> down) & 0x3FCu));
}

// Packs the upper bytes of four words into one; with `signs`, eight copies of each word's sign bit instead.
__device__ std::uint32_t upper_bytes(const std::uint32_t (&words)[kPack], int first, bool signs = false) {
  const auto pair = [&](std::uint32_t low, std::uint32_t high) {
    return permuted_bytes(low, high, signs ? 0xFBu : 0x73u);
  };
  return __byte_perm(pair(words[first], words[first + 1]), pair(words[first + 2], words[first + 3]), 0x5410);
}

// Encodes m and v relative to the state block's largest magnitude of each.
__device__ void encode(float (&m)[kPack], float (&v)[kPack], float largest_m, float largest_v,
                       Pack<std::uint8_t, kPack>& m_codes, Pack<std::uint8_t, kPack>& v_codes) {
  const float inverse_m = inverse_scale(largest_m);
  const float inverse_v = inverse_scale(largest_v);
  float factor_m = inverse_m * kCodeScale;
  float factor_v = inverse_v * kCodeScale;
  if (fmaxf(largest_m, largest_v) > 0x1p22f) {  // factor_m or factor_v may be denormal, and so inexact
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      m[k] *= inverse_m;
      v[k] *= inverse_v;
    }
    factor_m = kCodeScale;
    factor_v = kCodeScale;
  }
  std::uint32_t bits_m[kPack];
  std::uint32_t sums_m[kPack];
  std::uint32_t sums_v[kPack];
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    bits_m[k] = __float_as_uint(m[k] * factor_m);
    sums_m[k] =
        shared_at<std::uint32_t>(kPositive + (bits_m[k] >> CodeTable<1>::kDown) * 4) + (bits_m[k] << CodeTable<1>::kUp);
    const std::uint32_t bits_v = __float_as_uint(v[k] * factor_v);
    sums_v[k] = shared_at<std::uint32_t>(kMagnitudes + (((bits_v >> CodeTable<2>::kDown) * 4) & 0xFFFCu)) +
                (bits_v << CodeTable<2>::kUp);
  }
#pragma unroll
  for (int k = 0; k < kPack; k += 4) {
    const std::uint32_t m_word = upper_bytes(sums_m, k) ^ upper_bytes(bits_m, k, true);
    const std::uint32_t v_word = upper_bytes(sums_v, k);
    memcpy(&m_codes.values[k], &m_word, sizeof(m_word));
    memcpy(&v_codes.values[k], &v_word, sizeof(v_word));
  }
}

__device__ float largest_of_warp(float magnitude) {
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(magnitude)));
}

// Updates this lane's elements of a state block and stores everything (steps 3 to 6 above).
template <class T, class G>
__device__ void update(const Held<T, G>& held, const Tensors<T, G>& p, const AdamwConstants<float>& c,
                       const AdamwStepNumbers<float>& step, std::int64_t block, int count) {
  const std::int64_t at = first_of(block);
  std::uint32_t old_m[2];
  std::uint32_t old_v[2];
  memcpy(old_m, &held.m, sizeof(old_m));
  memcpy(old_v, &held.v, sizeof(old_v));
  Pack<T, kPack> weight;
  float new_m[kPack];
  float new_v[kPack];
  float new_weight[kPack / 2][2];
  float largest_m = 0;
  float largest_v = 0;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kPack; k += 2) {
    float g[2];
    float w[2];
    widen_pair(held.gradient, k, g);
    widen_pair(held.weight, k, w);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int i = k + odd;
      g[odd] *= step.clip;
      // Adding 0 turns -0 into 0, so that a number has a negative code only if it is below 0.
      new_m[i] = c.next_m(fmaf(value_of(kValuesOfM, old_m, i), held.m_scale, 0.0f), g[odd]);
      new_v[i] = c.next_v(value_of(kValuesOfV, old_v, i) * held.v_scale, g[odd]);
      new_weight[k / 2][odd] = step.next_weight(w[odd], new_m[i], new_v[i], c.epsilon);
      sum += new_weight[k / 2][odd];
      largest_m = fmaxf(largest_m, fabsf(new_m[i]));
      largest_v = fmaxf(largest_v, new_v[i]);
    }
  }
  RoundingBits bits{};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    bits = rounding_bits(c.seed, c.stream, step.step, static_cast<std::uint64_t>(c.first + at) / kPack);
  }
  const auto round = [&]<bool kAny>() {
#pragma unroll
    for (int k = 0; k < kPack; k += 2) {
      round_pair<kAny>(weight, k, new_weight[k / 2], bits.piece(k), bits.piece(k + 1));
    }
  };
  round.template operator()<false>();
  if (isnan(sum)) round.template operator()<true>();
  Pack<G, kPack> zero;
#pragma unroll
  for (int k = 0; k < kPack; ++k) zero[k] = narrowed<G>(0);
  if (c.clears) store_pack(p.gradient + at, count, zero);
  store_pack(p.weight + at, count, weight);
  largest_m = largest_of_warp(largest_m);
  largest_v = largest_of_warp(largest_v);
  Pack<std::uint8_t, kPack> m;
  Pack<std::uint8_t, kPack> v;
  encode(new_m, new_v, largest_m, largest_v, m, v);
  store_pack(p.m + at, count, m);
  store_pack(p.v + at, count, v);
  if (threadIdx.x % 32 == 0) {
    p.m_scale[block] = inverse_scale(largest_m) == 0 ? 0.0f : largest_m;
    p.v_scale[block] = inverse_scale(largest_v) == 0 ? 0.0f : largest_v;
  }
}

// Starts copying a table to an offset in shared memory. The copies of all tables are in flight together.
template <class Number, std::size_t kSize>
__device__ void copy_table(int to, const std::array<Number, kSize>& from) {
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(kSize); i += kThreads) {
    copy_async4(shared_address(reinterpret_cast<Number*>(shared + to) + i), &from[static_cast<std::size_t>(i)], true);
  }
}

template <class T, class G>
__global__ void __launch_bounds__(kThreads, kResident) adamw_8bit_kernel(Tensors<T, G> p, AdamwConstants<float> c) {
  const std::int64_t wave = blockIdx.x / kWave;
  const std::int64_t place = blockIdx.x % kWave;
  constexpr std::int64_t kStride = kWave * kWarps;
  std::int64_t block = wave * p.rounds * kStride + place * kWarps + threadIdx.x / 32;
  const std::int64_t blocks = scales_of(p.elements);
  const std::int64_t full = p.elements / kStateBlock;
  const std::int64_t after = block + p.rounds * kStride;
  const std::int64_t end = after < full ? after : full;
  const auto count = [&] {
    const std::int64_t left = p.elements - first_of(block);
    return left < kPack ? static_cast<int>(left) : kPack;
  };
  // The next state block is loaded while the current one is computed; the first one while the tables are copied.
  Held<T, G> next;
  if (block < end) load(next, p, block, kPack);
  auto& shared_step = *reinterpret_cast<AdamwStepNumbers<float>*>(shared + kStep);
  if (threadIdx.x == 0) {
    shared_step = AdamwStepNumbers<float>(p.hyper, p.norm, p.bad, c.weight_decay);
    *reinterpret_cast<std::uint32_t*>(shared + kNanOfM) = CodeTable<1>::kNanEntry;
    *reinterpret_cast<std::uint32_t*>(shared + kNanOfV) = CodeTable<2>::kNanEntry;
  }
  copy_table(kPositive, kTables.positive.entries);
  copy_table(kNegative, kTables.negative.entries);
  copy_table(kMagnitudes, kTables.magnitudes.entries);
  copy_table(kValuesOfM, kTables.m);
  copy_table(kValuesOfV, kTables.v);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
  const AdamwStepNumbers<float> step = shared_step;
  if (step.bad) {
    if (!c.clears) return;
    Pack<G, kPack> zero;
#pragma unroll
    for (int k = 0; k < kPack; ++k) zero[k] = narrowed<G>(0);
    for (; block < after && block < blocks; block += kStride) store_pack(p.gradient + first_of(block), count(), zero);
    return;
  }
  for (; block < end; block += kStride) {
    const Held<T, G> held = next;
    if (block + kStride < end) load(next, p, block + kStride, kPack);
    update(held, p, c, step, block, kPack);
  }
  if (block < after && block < blocks) {
    // The last, partial state block. A separate variable: if it were `next`, the loop too would hold the codes as
    // single bytes, unpacked as soon as they are loaded.
    Held<T, G> last;
    load(last, p, block, count());
    update(last, p, c, step, block, count());
  }
}

template <class T, class G>
void launch(const KernelCall& call) {
  const std::int64_t elements = call.out(Adamw8bitOut::m).elements();
  const auto& attributes = call.attributes_as<AdamwAttributes>();
  const TensorView& weight = call.out(Adamw8bitOut::weight);
  const TensorView& gradient = call.out(Adamw8bitOut::gradient);
  const std::int64_t blocks = ceil_div(scales_of(elements), kWarps);
  if (blocks == 0) return;
  const std::int64_t rounds = ceil_div(blocks, kWave);  // state blocks of a warp if there were one wave
  const std::int64_t waves = std::max<std::int64_t>(1, (rounds + kRounds / 2) / kRounds);
  const Tensors<T, G> tensors{.weight = cuda_data<T>(weight) + attributes.start_in(weight.elements()),
                              .gradient = cuda_data<G>(gradient) + attributes.start_in(gradient.elements()),
                              .m = cuda_data<std::uint8_t>(call.out(Adamw8bitOut::m)),
                              .v = cuda_data<std::uint8_t>(call.out(Adamw8bitOut::v)),
                              .m_scale = cuda_data<float>(call.out(Adamw8bitOut::m_scale)),
                              .v_scale = cuda_data<float>(call.out(Adamw8bitOut::v_scale)),
                              .norm = cuda_data<float>(call.in(Adamw8bitIn::norm)),
                              .hyper = cuda_data<float>(call.in(Adamw8bitIn::hyper)),
                              .bad = cuda_data<std::int32_t>(call.in(Adamw8bitIn::bad)),
                              .elements = elements,
                              .rounds = ceil_div(rounds, waves)};
  const auto kernel = adamw_8bit_kernel<T, G>;
  const std::size_t most = cuda_device_of(call).shared_bytes_per_block();
  if (most < kSharedBytes) {
    throw Error("adamw_8bit",
                text_of("needs ", kSharedBytes, " bytes of shared memory; ", call.device->name(), " has ", most),
                "use optim: adamw_torch");
  }
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  const auto grid = static_cast<unsigned>(std::min(blocks, waves * kWave));
  kernel<<<grid, kThreads, kSharedBytes, stream_of(call)>>>(tensors, AdamwConstants<float>(attributes));
  check_launch("adamw_8bit");
}

void forward(const KernelCall& call) {
  const bool narrow_gradient = call.in(Adamw8bitIn::gradient).dtype() == DType::kBf16;
  if (call.in(Adamw8bitIn::weight).dtype() == DType::kF32) return launch<float, float>(call);
  if (narrow_gradient) return launch<__nv_bfloat16, __nv_bfloat16>(call);
  launch<__nv_bfloat16, float>(call);
}

}  // namespace

void register_adamw_8bit_cuda(KernelRegistry& registry) {
  registry.add("adamw_8bit", DeviceKind::kCuda, {forward, {}});
}

}  // namespace hone
