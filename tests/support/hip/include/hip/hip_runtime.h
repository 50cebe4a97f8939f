// The part of HIP's kernel language that hone uses, emulated on the CPU (tests/support/hip/emulator.h).
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>

#include "hip/hip_runtime_api.h"
#include "support/hip/emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = hone::emulation::kWaveLanes;

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

inline void __syncthreads(const std::source_location& site = std::source_location::current()) {
  hone::emulation::wait_for_block(site);
}

namespace hone {

inline void collective_of(unsigned mask, const std::source_location& site) { emulation::set_collective(mask, site); }

}  // namespace hone

inline unsigned __lane_id() { return hone::emulation::wave_lane(); }
// A barrier of the lanes of a warp, whose writes are visible to each other after it.
inline void __syncwarp(const std::source_location& site = std::source_location::current()) {
  hone::emulation::set_collective(0xFFFFFFFFu, site);
  (void)hone::emulation::exchange(hone::emulation::Collective::kMeet, 0, __lane_id());
}
inline std::uint64_t __ballot(int value) {
  return hone::emulation::exchange(hone::emulation::Collective::kBallot, value != 0, __lane_id());
}

// The value of the lane `source` of the wave. As in HIP, a lane outside of the group of `width` lanes gives its own.
template <class T>
T emulated_shuffle(T value, unsigned source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = hone::emulation::exchange(hone::emulation::Collective::kShuffle, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl(T value, int lane, int width = warpSize) {
  const unsigned first = __lane_id() & ~static_cast<unsigned>(width - 1);
  return emulated_shuffle(value, first + (static_cast<unsigned>(lane) & static_cast<unsigned>(width - 1)));
}
template <class T>
T __shfl_xor(T value, int lanes, int width = warpSize) {
  const unsigned self = __lane_id();
  const unsigned other = self ^ static_cast<unsigned>(lanes);
  const bool inside = (self ^ other) < static_cast<unsigned>(width);
  return emulated_shuffle(value, inside ? other : self);
}
template <class T>
T __shfl_up(T value, unsigned distance, int width = warpSize) {
  const unsigned self = __lane_id();
  const unsigned place = self & static_cast<unsigned>(width - 1);
  return emulated_shuffle(value, place >= distance ? self - distance : self);
}

inline int __popc(unsigned value) { return std::popcount(value); }
inline int __ffs(unsigned value) { return value == 0 ? 0 : std::countr_zero(value) + 1; }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline unsigned long long __double2ull_rn(double value) { return static_cast<unsigned long long>(rint(value)); }
inline float __expf(float x) { return expf(x); }
// cos(pi x), exact where it is 0, 1 or -1.
inline double cospi(double x) {
  const double turn = fabs(x - 2 * rint(x / 2));  // in [0, 1]
  if (turn < 0.25) return cos(M_PI * turn);
  return turn > 0.75 ? -cos(M_PI * (1 - turn)) : sin(M_PI * (0.5 - turn));
}
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= (static_cast<unsigned>(both >> 8 * (selector >> 4 * i & 7u)) & 0xFFu) << 8 * i;
  return result;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return static_cast<std::common_type_t<A, B>>(a) < static_cast<std::common_type_t<A, B>>(b) ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return static_cast<std::common_type_t<A, B>>(b) < static_cast<std::common_type_t<A, B>>(a) ? b : a;
}

template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to += value;
  return before;
}
template <class T>
T atomicExch(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to = value;
  return before;
}

namespace hone::emulation {

// kernel<<<grid, block, bytes, stream>>>(arguments) is translated to kernel ->* launch(grid, block, ...)(arguments).
// The arguments are evaluated when it is called and copied, as a launch does.
struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;
  hipStream_t stream;
  std::source_location site;

  template <class... Arguments>
  struct Bound;
  template <class... Arguments>
  Bound<Arguments...> operator()(const Arguments&... arguments) const {
    return {*this, {arguments...}};
  }
};
template <class... Arguments>
struct Launch::Bound {
  Launch launch;
  std::tuple<Arguments...> arguments;
};
inline Launch launch(dim3 grid, dim3 block, std::size_t shared_bytes = 0, hipStream_t stream = nullptr,
                     const std::source_location& site = std::source_location::current()) {
  return {grid, block, shared_bytes, stream, site};
}

template <class Kernel, class... Arguments>
void operator->*(const Kernel& kernel, const Launch::Bound<Arguments...>& bound) {
  const auto work = [kernel, launch = bound.launch, arguments = bound.arguments] {
    run_kernel({launch.grid.x, launch.grid.y, launch.grid.z}, {launch.block.x, launch.block.y, launch.block.z},
               launch.shared_bytes, launch.site, [&] { std::apply(kernel, arguments); });
  };
  submit(bound.launch.stream, work);
}
template <class... Parameters, class... Arguments>
void operator->*(void (*kernel)(Parameters...), const Launch::Bound<Arguments...>& bound) {
  const auto call = [kernel](const auto&... arguments) { kernel(arguments...); };
  call->*bound;
}

}  // namespace hone::emulation

// The kernel of a template whose parameters follow from the arguments.
#define HONE_KERNEL(name) [=](const auto&... arguments) { name(arguments...); }
