// Kernels of the head over a part of the vocabulary: targets as rows of the part, and the merge of all ranks'
// statistics (merge_parts.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda_kernel.cuh"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/linear_logprobs/logits.cuh"
#include "ops/linear_logprobs/merge_parts.h"

namespace hone {

inline constexpr int kPartThreads = 256;

// Memory of the forward pass behind the workspace of the head: the targets as rows of the part, and the statistics
// that the ranks exchange, [ranks, kPartStatistics, rows].
struct PartWorkspace {
  std::size_t targets = 0;
  std::size_t statistics = 0;

  PartWorkspace(const Type& targets_type, const Type& logp, std::int64_t ranks)
      : targets(align_up(targets_type.bytes())),
        statistics(align_up(static_cast<std::size_t>(ranks * kPartStatistics) * logp.bytes())) {}
};

// Writes the row of each target in the part; `count` for a target elsewhere, -1 for none.
static __global__ void __launch_bounds__(kPartThreads)
    part_targets_kernel(const std::int32_t* targets, std::int64_t rows, std::int32_t first, std::int32_t count,
                        std::int32_t* own) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kPartThreads + threadIdx.x;
  if (row >= rows) return;
  const std::int32_t place = targets[row] - first;
  own[row] = targets[row] < 0 ? -1 : place >= 0 && place < count ? place : count;
}

// Merges the statistics of all ranks. count: rows of each rank's part.
template <class A>
__global__ void __launch_bounds__(kPartThreads)
    merge_parts_kernel(const A* all, std::int64_t ranks, RowCount rows, const std::int32_t* targets, std::int64_t count,
                       LogprobOutputs<A> outputs) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kPartThreads + threadIdx.x;
  if (row >= rows.capacity) return;
  const std::int32_t target = row < rows.get() ? targets[row] : -1;
  MergedRow<A> merged{};
  // A target outside the vocabulary is none of the last rank's either, whose log-probability of it is NaN.
  if (target >= 0) merged = merge_parts(all, ranks, rows.capacity, row, min(target / count, ranks - 1));
  outputs.logp[row] = merged.logp;
  outputs.entropy[row] = merged.entropy;
  outputs.hit[row] = merged.hit;
  outputs.lse[row] = merged.lse;
}

// Fills [rows] numbers at `own`.
inline void take_part_targets(const KernelCall& call, const TensorView& targets, std::int64_t count,
                              std::int32_t* own) {
  const std::int64_t rows = targets.capacity();
  if (rows == 0) return;
  part_targets_kernel<<<static_cast<unsigned>(ceil_div(rows, kPartThreads)), kPartThreads, 0, stream_of(call)>>>(
      cuda_data<std::int32_t>(targets), rows,
      static_cast<std::int32_t>(call.attributes_as<LinearLogprobsPartAttributes>().first),
      static_cast<std::int32_t>(count), own);
  check_launch("linear_logprobs_part: targets");
}

}  // namespace hone
