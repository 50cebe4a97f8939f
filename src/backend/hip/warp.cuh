// CUDA's collectives of a warp of 32 lanes for HIP, whose waves have 32 or 64 lanes.
//
// HIP's shuffles take a width: with 32, each half of a wave of 64 exchanges values within itself. A ballot is one of
// the whole wave, of which a warp takes its half. HIP of ROCm 5 has no masks: the lanes that are active take part. hone
// calls collectives with all 32 lanes of a warp, and collective_of() lets the emulation (tests/support/hip) check it.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

namespace hone {

inline constexpr int kWarpLanes = 32;

// The lane's place in its wave.
__device__ inline unsigned wave_lane() { return __lane_id(); }
// The place of the first lane of the lane's warp in its wave.
__device__ inline unsigned warp_start() { return wave_lane() & ~static_cast<unsigned>(kWarpLanes - 1); }

#ifdef HONE_HIP_EMULATED
using CollectiveSite = std::source_location;
#else
struct CollectiveSite {
  __device__ static constexpr CollectiveSite current() { return {}; }
};
// The lanes `mask` of the warp execute the next collective together, which is called at `site`.
__device__ inline void collective_of(unsigned, const CollectiveSite&) {}
#endif

}  // namespace hone

template <class T>
__device__ inline T __shfl_sync(unsigned mask, T value, int lane,
                                hone::CollectiveSite site = hone::CollectiveSite::current()) {
  hone::collective_of(mask, site);
  return __shfl(value, lane, hone::kWarpLanes);
}
template <class T>
__device__ inline T __shfl_xor_sync(unsigned mask, T value, int lanes,
                                    hone::CollectiveSite site = hone::CollectiveSite::current()) {
  hone::collective_of(mask, site);
  return __shfl_xor(value, lanes, hone::kWarpLanes);
}
template <class T>
__device__ inline T __shfl_up_sync(unsigned mask, T value, unsigned distance,
                                   hone::CollectiveSite site = hone::CollectiveSite::current()) {
  hone::collective_of(mask, site);
  return __shfl_up(value, distance, hone::kWarpLanes);
}

__device__ inline unsigned __ballot_sync(unsigned mask, bool value,
                                         hone::CollectiveSite site = hone::CollectiveSite::current()) {
  hone::collective_of(mask, site);
  return static_cast<unsigned>(__ballot(value) >> hone::warp_start()) & mask;
}

// The lanes whose value is that of this lane.
template <class T>
__device__ inline unsigned __match_any_sync(unsigned mask, T value,
                                            hone::CollectiveSite site = hone::CollectiveSite::current()) {
  unsigned same = 0;
  for (int lane = 0; lane < hone::kWarpLanes; ++lane) {
    const T other = __shfl_sync(mask, value, lane, site);
    if ((mask >> lane & 1u) != 0 && other == value) same |= 1u << lane;
  }
  return same;
}

__device__ inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                             hone::CollectiveSite site = hone::CollectiveSite::current()) {
  for (int lanes = hone::kWarpLanes / 2; lanes > 0; lanes /= 2) {
    const unsigned other = __shfl_xor_sync(mask, value, lanes, site);
    value = other > value ? other : value;
  }
  return value;
}

#ifndef HONE_HIP_EMULATED
// Lanes of a wave run in lock-step; what they wrote to shared memory must be visible to each other.
__device__ inline void __syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif
