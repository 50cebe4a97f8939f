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
// Instructions limit the kernel more than memory does: a warp issues some 500 for its 256 elements.
//
// Shared memory, 73,744 bytes, by offset (the rest is unused):
//   0       codes of positive m: 1,537 words      8,208   codes of v: 3,073 words      65,532  entry of a NaN m
//   6,160   values of m: 256 floats               20,512  the step's numbers           65,536  codes of negative m
//   7,184   values of v: 256 floats                                                    73,740  entry of a NaN v
// The sign of m is bit 14 of its bucket's number and 2^14 words are 64 KiB, hence the distance of the tables of both
// signs: one shift and one load find the entry of any float (code_table.h).
//
// Steps:
//   1. start loading the warp's first state block; start copying the tables (cp.async); thread 0 reads the step's
//      numbers once for the block
//   2. wait for the copies, __syncthreads(): the only barrier of the block
//   3. for each state block: start loading the next; decode m and v; AdamW in f32 with the unrounded moments
//   4. round a bf16 weight stochastically with Philox bits of (seed, stream, step, element / 8); zero the gradient if
//      it is to be cleared
//   5. the largest |m| and v of the 256 elements by redux.sync on the bits of the floats, which order as the floats do
//   6. encode m and v as shares of these scales; store
// If `bad` is set, only the gradient is written (zeros), if that.
//
// The result does not depend on the launch: each element's numbers follow from its own inputs, its index and the maxima
// of its state block, and a maximum does not depend on order. Waves and rounds only decide which warp does the work.
#include <algorithm>
#include <cfloat>
#include <cstddef>

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
constexpr std::int64_t kMost = std::int64_t{1} << 31;      // elements of a launch

// All lookup tables, in device memory; each block copies them to shared memory, 16 bytes at a time.
struct Tables {
  alignas(16) CodeTable<1> positive;
  alignas(16) std::array<float, 256> m{};  // value of each code of m
  std::array<float, 256> v{};              // value of each code of v
  alignas(16) CodeTable<2> magnitudes;
  alignas(16) CodeTable<1, true> negative;

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
constexpr int kPositive = offsetof(Tables, positive);
constexpr int kValuesOfM = offsetof(Tables, m);
constexpr int kValuesOfV = offsetof(Tables, v);
constexpr int kMagnitudes = offsetof(Tables, magnitudes);
constexpr int kStep = offsetof(Tables, negative);
constexpr int kNegative = kPositive + 65536;
constexpr int kNanOfM = kPositive + 65532;
constexpr int kNanOfV = kMagnitudes + 65532;
constexpr int kSharedBytes = kNanOfV + 4;
static_assert(kPositive == 0 && kStep + sizeof(AdamwStepNumbers<float>) <= kNanOfM);
static_assert(kNegative + sizeof(Tables) - kStep <= kNanOfV);
static_assert((CodeTable<1>::kNan >> CodeTable<1>::kDown) * 4 == 65532);

extern __shared__ __align__(16) unsigned char shared[];

template <class Number>
__device__ Number shared_at(int table, std::uint32_t index) {
  return reinterpret_cast<const Number*>(shared + table)[index];
}

// Operands of the kernel. Numbers of elements have 32 bits, so that an address is one multiplication and addition;
// larger tensors take several launches.
template <class T, class G>
struct Tensors {
  T* weight;
  G* gradient;
  std::uint8_t* m;
  std::uint8_t* v;
  float* m_scale;
  float* v_scale;
  std::uint32_t elements;
  std::uint32_t rounds;  // state blocks of a warp
  std::uint64_t group;   // of the first elements: a number of rounding_bits()
  const float* norm;
  const float* hyper;
  const std::int32_t* bad;
  RoundingKeys keys;
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

// Starts loading a lane's elements from number `at`, of which `count` exist.
template <class T, class G>
__device__ void load(Held<T, G>& held, const Tensors<T, G>& p, std::uint32_t at, int count) {
  load_pack(held.gradient, p.gradient + at, count, narrowed<G>(0));
  load_pack(held.weight, p.weight + at, count, narrowed<T>(0));
  load_pack(held.m, p.m + at, count, static_cast<std::uint8_t>(kZeroCode));
  load_pack(held.v, p.v + at, count, std::uint8_t{0});
  held.m_scale = p.m_scale[at / kStateBlock];
  held.v_scale = p.v_scale[at / kStateBlock];
}

// The value of the k-th of eight codes, from the table at an offset in shared memory.
__device__ float value_of(int table, const std::uint32_t (&codes)[2], int k) {
  return shared_at<float>(table, permuted_bytes(codes[k / 4], 0, 0x4440u + static_cast<unsigned>(k % 4)));
}

// The entry of a float's bucket plus the bits below the bucket's number (code_table.h). kMask: bits of that number. If
// the compiler saw both operations, it would scale the index before the mask, with one instruction more.
template <class Table, std::uint32_t kMask>
__device__ std::uint32_t entry_of(int table, std::uint32_t bits) {
  const std::uint32_t bucket = opaque_and<kMask>(opaque_shift<Table::kDown>(bits));
  return shared_at<std::uint32_t>(table, bucket) + (bits << Table::kUp);
}

// Packs the upper bytes of four words into one; with `signs`, eight copies of each word's sign bit instead.
__device__ std::uint32_t upper_bytes(const std::uint32_t (&words)[kPack], int first, bool signs = false) {
  const auto pair = [&](std::uint32_t low, std::uint32_t high) {
    return permuted_bytes(low, high, signs ? 0xFBu : 0x73u);
  };
  return __byte_perm(pair(words[first], words[first + 1]), pair(words[first + 2], words[first + 3]), 0x5410);
}

// The inverse of a state block's largest magnitude, or 0 if that cannot be inverted (inverse_scale()). Correctly
// rounded for magnitudes up to 2^126 by one Newton step, and without a branch that could keep lanes apart.
__device__ float inverse_of(float largest) {
  const float first = reciprocal_fast(largest);
  const float inverse = fmaf(first, -fmaf(largest, first, -1.0f), first);
  return largest >= FLT_MIN ? inverse : 0.0f;
}

// Encodes m and v relative to the state block's largest magnitude of each.
__device__ void encode(float (&m)[kPack], float (&v)[kPack], float largest_m, float largest_v,
                       Pack<std::uint8_t, kPack>& m_codes, Pack<std::uint8_t, kPack>& v_codes) {
  float factor_m = inverse_of(largest_m) * kCodeScale;
  float factor_v = inverse_of(largest_v) * kCodeScale;
  if (fmaxf(largest_m, largest_v) > 0x1p22f) {  // factor_m or factor_v may be denormal, and so inexact
    const float inverse_m = inverse_scale(largest_m);
    const float inverse_v = inverse_scale(largest_v);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      m[k] *= inverse_m;
      v[k] *= inverse_v;
    }
    factor_m = kCodeScale;
    factor_v = kCodeScale;
  }
  __syncwarp();
  std::uint32_t bits_m[kPack];
  std::uint32_t sums_m[kPack];
  std::uint32_t sums_v[kPack];
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    bits_m[k] = __float_as_uint(m[k] * factor_m);
    sums_m[k] = entry_of<CodeTable<1>, ~0u>(kPositive, bits_m[k]);
    const std::uint32_t bits_v = __float_as_uint(v[k] * factor_v);
    sums_v[k] = entry_of<CodeTable<2>, 0x3FFFu>(kMagnitudes, bits_v);
  }
#pragma unroll
  for (int k = 0; k < kPack; k += 4) {
    const std::uint32_t m_word = upper_bytes(sums_m, k) ^ upper_bytes(bits_m, k, true);
    const std::uint32_t v_word = upper_bytes(sums_v, k);
    memcpy(&m_codes.values[k], &m_word, sizeof(m_word));
    memcpy(&v_codes.values[k], &v_word, sizeof(v_word));
  }
}

// A state block's scale as it is stored: 0 if it cannot be inverted.
__device__ float stored_scale(float largest) { return largest >= FLT_MIN && largest <= FLT_MAX ? largest : 0.0f; }

template <class G>
__device__ void store_zeros(G* to, int count) {
  Pack<G, kPack> zero;
#pragma unroll
  for (int k = 0; k < kPack; ++k) zero[k] = narrowed<G>(0);
  store_pack(to, count, zero);
}

__device__ float largest_of_warp(float magnitude) {
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(magnitude)));
}

// Updates this lane's elements of a state block and stores everything (steps 3 to 6 above).
template <bool kFlushes, class T, class G>
__device__ void update(const Held<T, G>& held, const Tensors<T, G>& p, const AdamwConstants<float>& c,
                       const AdamwStepNumbers<float>& step, std::uint32_t at, int count) {
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
      new_weight[k / 2][odd] = step.template next_weight<kFlushes>(w[odd], new_m[i], new_v[i], c.epsilon);
      sum += new_weight[k / 2][odd];
      largest_m = fmaxf(largest_m, fabsf(new_m[i]));
      largest_v = fmaxf(largest_v, new_v[i]);
    }
  }
  RoundingBits bits{};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    bits = rounding_bits(p.keys, c.stream, step.step, p.group + at / kPack);
  }
  const auto round = [&]<bool kAny>() {
#pragma unroll
    for (int k = 0; k < kPack; k += 2) {
      round_pair<kAny>(weight, k, new_weight[k / 2], bits.piece(k), bits.piece(k + 1));
    }
  };
  round.template operator()<false>();
  if (isnan(sum)) round.template operator()<true>();
  if (c.clears) store_zeros(p.gradient + at, count);
  store_pack(p.weight + at, count, weight);
  largest_m = largest_of_warp(largest_m);
  largest_v = largest_of_warp(largest_v);
  Pack<std::uint8_t, kPack> m;
  Pack<std::uint8_t, kPack> v;
  encode(new_m, new_v, largest_m, largest_v, m, v);
  store_pack(p.m + at, count, m);
  store_pack(p.v + at, count, v);
  if (threadIdx.x % 32 == 0) {
    p.m_scale[at / kStateBlock] = stored_scale(largest_m);
    p.v_scale[at / kStateBlock] = stored_scale(largest_v);
  }
}

// Starts copying part of the tables, from one offset to another, to shared memory.
__device__ void copy_tables(int from, int end, int to) {
  const auto* tables = reinterpret_cast<const unsigned char*>(&kTables);
  for (int i = from + static_cast<int>(threadIdx.x) * 16; i < end; i += kThreads * 16) {
    copy_async16(shared_address(shared + to - from + i), tables + i, true);
  }
}

template <class T, class G, bool kFlushes>
__global__ void __launch_bounds__(kThreads, kResident) adamw_8bit_kernel(Tensors<T, G> p, AdamwConstants<float> c) {
  constexpr std::uint32_t kStride = kWave * kWarps * kStateBlock;
  const std::uint32_t wave = blockIdx.x / kWave;
  std::uint32_t at = (wave * p.rounds * kWave + blockIdx.x % kWave) * kWarps * kStateBlock + threadIdx.x * kPack;
  const std::uint32_t after = (wave + 1) * p.rounds * kStride;  // of the elements of this wave
  const std::uint32_t end = after < p.elements ? after : p.elements;
  const std::uint32_t full = end / kStateBlock * kStateBlock;
  const auto count = [&] { return at >= end ? 0 : end - at < kPack ? static_cast<int>(end - at) : kPack; };
  // The next state block is loaded while the current one is computed; the first one while the tables are copied.
  Held<T, G> next;
  if (at < full) load(next, p, at, kPack);
  auto& shared_step = *reinterpret_cast<AdamwStepNumbers<float>*>(shared + kStep);
  if (threadIdx.x == 0) {
    shared_step = AdamwStepNumbers<float>(p.hyper, p.norm, p.bad, c.weight_decay);
    *reinterpret_cast<std::uint32_t*>(shared + kNanOfM) = CodeTable<1>::kNanEntry;
    *reinterpret_cast<std::uint32_t*>(shared + kNanOfV) = CodeTable<2>::kNanEntry;
  }
  copy_tables(0, kStep, 0);
  copy_tables(kStep, sizeof(Tables), kNegative);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
  const AdamwStepNumbers<float> step = shared_step;
  if (step.bad) {
    if (!c.clears) return;
    for (; at < end; at += kStride) store_zeros(p.gradient + at, count());
    return;
  }
  for (; at < full; at += kStride) {
    const Held<T, G> held = next;
    if (at + kStride < full) load(next, p, at + kStride, kPack);
    update<kFlushes>(held, p, c, step, at, kPack);
  }
  // The last, partial state block, of which this lane may have nothing.
  if (at / kStateBlock * kStateBlock < end) {
    // A separate variable: if it were `next`, the loop too would hold the codes as single bytes, unpacked as soon as
    // they are loaded.
    Held<T, G> last;
    load(last, p, at, count());
    update<kFlushes>(last, p, c, step, at, count());
  }
}

// Launches the kernel for at most kMost elements.
template <class T, class G, bool kFlushes>
void launch_part(const Tensors<T, G>& all, const AdamwConstants<float>& constants, cudaStream_t stream) {
  Tensors<T, G> tensors = all;
  const std::int64_t blocks = ceil_div(scales_of(tensors.elements), kWarps);
  const std::int64_t rounds = ceil_div(blocks, kWave);  // state blocks of a warp if there were one wave
  const std::int64_t waves = std::max<std::int64_t>(1, (rounds + kRounds / 2) / kRounds);
  tensors.rounds = static_cast<std::uint32_t>(ceil_div(rounds, waves));
  const auto grid = static_cast<unsigned>(std::min(blocks, waves * kWave));
  adamw_8bit_kernel<T, G, kFlushes><<<grid, kThreads, kSharedBytes, stream>>>(tensors, constants);
  check_launch("adamw_8bit");
}

template <class T, class G, bool kFlushes>
void launch_parts(const KernelCall& call) {
  const std::size_t most = cuda_device_of(call).shared_bytes_per_block();
  if (most < kSharedBytes) {
    throw Error("adamw_8bit",
                text_of("needs ", kSharedBytes, " bytes of shared memory; ", call.device->name(), " has ", most),
                "use optim: adamw_torch");
  }
  check_cuda(cudaFuncSetAttribute(adamw_8bit_kernel<T, G, kFlushes>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kSharedBytes),
             "cudaFuncSetAttribute");
  const std::int64_t elements = call.out(Adamw8bitOut::m).elements();
  const auto& attributes = call.attributes_as<AdamwAttributes>();
  const TensorView& weight = call.out(Adamw8bitOut::weight);
  const TensorView& gradient = call.out(Adamw8bitOut::gradient);
  for (std::int64_t from = 0; from < elements; from += kMost) {
    launch_part<T, G, kFlushes>(
        Tensors<T, G>{.weight = cuda_data<T>(weight) + attributes.start_in(weight.elements()) + from,
                      .gradient = cuda_data<G>(gradient) + attributes.start_in(gradient.elements()) + from,
                      .m = cuda_data<std::uint8_t>(call.out(Adamw8bitOut::m)) + from,
                      .v = cuda_data<std::uint8_t>(call.out(Adamw8bitOut::v)) + from,
                      .m_scale = cuda_data<float>(call.out(Adamw8bitOut::m_scale)) + from / kStateBlock,
                      .v_scale = cuda_data<float>(call.out(Adamw8bitOut::v_scale)) + from / kStateBlock,
                      .elements = static_cast<std::uint32_t>(std::min(elements - from, kMost)),
                      .rounds = 0,
                      .group = static_cast<std::uint64_t>(attributes.first + from) / kPack,
                      .norm = cuda_data<float>(call.in(Adamw8bitIn::norm)),
                      .hyper = cuda_data<float>(call.in(Adamw8bitIn::hyper)),
                      .bad = cuda_data<std::int32_t>(call.in(Adamw8bitIn::bad)),
                      .keys = RoundingKeys(static_cast<std::uint64_t>(attributes.seed))},
        AdamwConstants<float>(attributes), stream_of(call));
  }
}

template <class T, class G>
void launch(const KernelCall& call) {
  const bool flushes = flushing_is_exact(call.attributes_as<AdamwAttributes>());
  return flushes ? launch_parts<T, G, true>(call) : launch_parts<T, G, false>(call);
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
