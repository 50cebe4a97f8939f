#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kMostWarps = 32;  // in one block
constexpr int kSharedCounts = 224 * 1024;
constexpr int kHeld = 8;  // choices that a lane loads together
constexpr unsigned kAll = 0xFFFFFFFFu;

// Inclusive sum over the threads of a block; `sums` holds a number for each warp and may be reused after the next
// __syncthreads().
__device__ std::int32_t scanned(std::int32_t value, std::int32_t* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  value = warp_sum_up_to(value);
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  for (int before = 0; before < warp; ++before) value += sums[before];
  return value;
}

// Step 2 of expert_order_kernel: replaces counts [warps, experts] by the first rows of each warp's choices.
__device__ void place_counts(std::int32_t* counts, int experts, std::int32_t* start, std::int32_t* sums) {
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = threads / 32;
  std::int32_t before = 0;  // rows of the experts before
  if (thread == 0) start[0] = 0;
  for (int base = 0; base < experts; base += threads) {
    const int e = base + thread;
    std::int32_t total = 0;
    for (int w = 0; w < warps && e < experts; ++w) total += counts[w * experts + e];
    const std::int32_t last = before + scanned(total, sums);
    std::int32_t next = last - total;
    for (int w = 0; w < warps && e < experts; ++w) {
      const std::int32_t count = counts[w * experts + e];
      counts[w * experts + e] = next;
      next += count;
    }
    if (e < experts) start[e + 1] = last;
    for (int w = 0; w < warps; ++w) before += sums[w];
    __syncthreads();
  }
}

// Sorts the choices of experts from `first_expert` on, `experts` of them, by expert, in one block and keeping their
// order. Other choices get the position -1; all_rows, if given, the number of rows. Each warp has a part of the
// choices, one after the other, and a count for each expert in shared memory:
//   1. the warps count their choices;
//   2. the counts become the first rows of each warp's choices, by expert and then by warp;
//   3. the warps give out rows in the order of their choices.
// Counts are integers, so that the order of additions does not matter.
__global__ void __launch_bounds__(32 * kMostWarps)
    expert_order_kernel(const std::int32_t* expert, RowCount rows, std::int64_t top_k, int first_expert, int experts,
                        std::int32_t* position, std::int32_t* start, std::int64_t* all_rows) {
  extern __shared__ std::int32_t counts[];  // [warps, experts]
  __shared__ std::int32_t sums[kMostWarps];
  begin_dependent_kernel();
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warps = threads / 32;
  std::int32_t* own = counts + thread / 32 * experts;
  const std::int64_t used = rows.get() * top_k;
  const std::int64_t part = ceil_div(used, warps);
  const std::int64_t begin = thread / 32 * part;
  const std::int64_t end = begin + part < used ? begin + part : used;
  // Calls body(index, expert) for the warp's choices, 32 at a time; the expert is -1 after the last and for others.
  const auto for_choices = [&](const auto& body) {
    for (std::int64_t first = begin; first < end; first += 32 * kHeld) {
      std::int32_t held[kHeld];
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const std::int64_t at = first + i * 32 + lane;
        held[i] = at < end ? expert[at] - first_expert : -1;
        if (held[i] >= experts) held[i] = -1;
      }
#pragma unroll
      for (int i = 0; i < kHeld; ++i) body(first + i * 32 + lane, held[i]);
    }
  };

  for (int i = thread; i < warps * experts; i += threads) counts[i] = 0;
  __syncthreads();
  for_choices([&](std::int64_t, std::int32_t e) {
    if (e >= 0) atomicAdd(own + e, 1);
  });
  __syncthreads();

  place_counts(counts, experts, start, sums);

  for_choices([&](std::int64_t at, std::int32_t e) {
    const unsigned same = __match_any_sync(kAll, e);
    const int rank = __popc(same & ((1u << lane) - 1));
    const std::int32_t first = e >= 0 ? own[e] : 0;
    __syncwarp();
    if (e >= 0 && rank == 0) own[e] = first + __popc(same);
    __syncwarp();
    if (at < end) position[at] = e >= 0 ? first + rank : -1;
  });
  if (thread == 0 && all_rows != nullptr) *all_rows = start[experts];
  for (std::int64_t i = used + thread; i < rows.capacity * top_k; i += threads) position[i] = 0;
}

void order_rows(const KernelCall& call, std::int64_t first, std::int64_t experts, std::int64_t* rows) {
  const TensorView& expert = call.in(0);
  const std::int64_t counts_bytes = experts * static_cast<std::int64_t>(sizeof(std::int32_t));
  // The result does not depend on the number of warps. The kernel has kMostWarps other numbers in shared memory.
  const std::int64_t most =
      std::min<std::int64_t>(kSharedCounts, static_cast<std::int64_t>(cuda_device_of(call).shared_bytes_per_block()) -
                                                kMostWarps * static_cast<std::int64_t>(sizeof(std::int32_t)));
  HONE_ASSERT(counts_bytes <= most, experts, " experts");
  const std::int64_t warps = std::clamp<std::int64_t>(
      std::min<std::int64_t>(most / counts_bytes, ceil_div(expert.elements(), 32)), 1, kMostWarps);
  check_cuda(
      cudaFuncSetAttribute(expert_order_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)),
      "cudaFuncSetAttribute");
  launch_dependent({1, static_cast<unsigned>(32 * warps), static_cast<std::size_t>(warps * counts_bytes)},
                   stream_of(call), expert_order_kernel, expert.as<std::int32_t>(), row_count(expert),
                   expert.row_size(), static_cast<int>(first), static_cast<int>(experts),
                   call.out(ExpertOrderOut::position).as<std::int32_t>(),
                   call.out(ExpertOrderOut::start).as<std::int32_t>(), rows);
  check_launch("expert_order");
}

void forward(const KernelCall& call) {
  order_rows(call, 0, call.attributes_as<ExpertOrderAttributes>().experts, nullptr);
}

void forward_part(const KernelCall& call) {
  const auto& part = call.attributes_as<ExpertPartAttributes>();
  order_rows(call, part.first, part.own, call.out(ExpertOrderPartOut::rows).as<std::int64_t>());
}

}  // namespace

void register_expert_order_cuda(KernelRegistry& registry) {
  registry.add("expert_order", DeviceKind::kCuda, {forward, {}});
  registry.add("expert_order_part", DeviceKind::kCuda, {forward_part, {}});
}

}  // namespace hone
