// Runs HIP kernels on the CPU as C++, to check them where there is no GPU.
//
// Every thread of a block is a fiber, and blocks run one after the other. A fiber runs until it ends or has to wait: at
// __syncthreads() for all threads of the block that have not ended, at a collective for the lanes of its mask. Within
// these limits the order is arbitrary, as it is on a GPU: it is shuffled at every step and differs from launch to
// launch, so that a result that depends on a barrier that is missing differs between two runs. Waves have 64 lanes, and
// what a GPU leaves undefined is garbage: shared memory of a new block, and the bits of a ballot of other lanes.
//
// The launch ends with a Defect that names kernel, block and places
//   - if the threads that have not ended all wait, but not at one barrier or for each other (a deadlock on a GPU),
//   - if the lanes of a mask are not all there: they have ended, do not exist or are at another collective,
//   - if a lane reads one that is not in the mask, or is not in the mask itself,
//   - if shared memory is written past its end.
// The kernels' sources are those of the GPU but for launches and shared variables (translate.sed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

#include "hip/hip_runtime_api.h"

namespace hone::emulation {

inline constexpr unsigned kWaveLanes = 64;

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

// Executes `work` or, while the stream is captured, appends it to the graph.
void submit(hipStream_t stream, std::function<void()> work);

// Runs thread() for all threads of all blocks. `site` is the launch, for messages.
void run_kernel(const Extent& grid, const Extent& block, std::size_t shared_bytes, const std::source_location& site,
                const std::function<void()>& thread);

// The running thread calls the following functions.
void wait_for_block(const std::source_location& site);
// The next collective is one of these lanes of the warp, at `site`.
void set_collective(std::uint32_t mask, const std::source_location& site);
enum class Collective : std::uint8_t { kShuffle, kBallot, kMeet };
// Hands `bits` to the other lanes of the collective and returns those of the lane `source` of the wave; for a ballot,
// the bits of all lanes.
[[nodiscard]] std::uint64_t exchange(Collective kind, std::uint64_t bits, unsigned source);
[[nodiscard]] unsigned wave_lane();
// Fills a shared variable with garbage the first time that a thread of the block reaches it.
void enter_shared(void* variable, std::size_t bytes);
extern std::byte dynamic_shared[];

}  // namespace hone::emulation
