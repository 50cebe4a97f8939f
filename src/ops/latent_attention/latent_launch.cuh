// Chooses and launches the kernels for attention to latent rows on Hopper, and merges splits.
#pragma once

#include <algorithm>

#include "ops/attention/tensor_forward.cuh"
#include "ops/latent_attention/narrow_latent.cuh"
#include "ops/latent_attention/wgmma_latent.cuh"

namespace hone {

// Merges the splits of the row (token and head) that sequence_tile() gives the block; a thread has four columns.
__global__ void __launch_bounds__(kLatentRank / 4) latent_merge(LatentQueries queries) {
  constexpr int kTogether = 8;  // splits that are loaded together
  begin_dependent_kernel();
  const SequenceTile tile = sequence_tile(queries.sequences, queries.heads, 1, blockIdx.x);
  if (tile.outside || tile.first >= tile.end) return;
  const std::int64_t head_row = tile.token * queries.heads + tile.first;
  const int count = (queries.keys.starts[tile.sequence] + tile.first / queries.heads) / kLatentSplitKeys + 1;
  const float scale = queries.scale * kLog2e;
  const int column = static_cast<int>(threadIdx.x) * 4;
  float greatest = 0.0f, sum = 0.0f;
  float4 o{};
  for (int first = 0; first < count; first += kTogether) {
    float2 totals[kTogether], low[kTogether], high[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= count) continue;
      const float* from = queries.splits.at(head_row, first + i, kLatentRank);
      totals[i] = *reinterpret_cast<const float2*>(from + kLatentRank);
      low[i] = *reinterpret_cast<const float2*>(from + column);
      high[i] = *reinterpret_cast<const float2*>(from + column + 2);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= count) continue;
      if (first + i == 0) {
        greatest = totals[i].x;
        sum = totals[i].y;
        o = make_float4(low[i].x, low[i].y, high[i].x, high[i].y);
        continue;
      }
      const SplitFactors factors(greatest, sum, totals[i].x, totals[i].y, scale);
      o.x = factors.output(o.x, low[i].x);
      o.y = factors.output(o.y, low[i].y);
      o.z = factors.output(o.z, high[i].x);
      o.w = factors.output(o.w, high[i].y);
    }
  }
  const float factor = 1.0f / sum;
  *reinterpret_cast<uint2*>(queries.o + head_row * kLatentRank + column) =
      make_uint2(packed_bf16(o.x * factor, o.y * factor), packed_bf16(o.z * factor, o.w * factor));
}

// Fewer items than this do not fill a GPU, so that each split is an item.
inline constexpr std::int64_t kFewLatentItems = 132;

// Layout of a launch and its workspace, which follow from capacities only.
struct LatentLaunch {
  bool narrow;  // the kernel of narrow_latent.cuh
  std::int64_t item_heads, item_tokens, items;
  bool shares_splits;  // splits are items, merged by another kernel
  std::int64_t splits;
  std::size_t workspace_bytes = 0;

  LatentLaunch(std::int64_t rows, std::int64_t sequences, std::int64_t heads, std::int64_t most_keys) {
    // With two tokens a sequence, the narrow kernel would read each key twice.
    narrow = heads <= kNarrowHeads && rows < 2 * sequences;
    item_heads = std::min<std::int64_t>(heads, kLatentRows);
    item_tokens = narrow ? 1 : kLatentRows / item_heads;
    items = narrow ? rows : (rows / item_tokens + sequences + 1) * ceil_div(heads, item_heads);
    splits = ceil_div(most_keys, kLatentSplitKeys);
    shares_splits = splits > 1 && items < kFewLatentItems;
    if (shares_splits) {
      workspace_bytes = static_cast<std::size_t>(rows * heads * splits * (kLatentRank + 2)) * sizeof(float);
    } else if (splits > 1 && !narrow) {
      workspace_bytes = static_cast<std::size_t>(kMostKeepingBlocks * 2 * LatentQueries::kKept) * sizeof(float4);
    }
  }
};

// The maps of a launch. Without promotion: at 256 bytes the L2 cache would fetch parts of rows, which are no multiple
// of that, twice, and copies alone take 6% more time.
[[nodiscard]] inline LatentMaps latent_maps(const LatentQueries& queries, const __nv_bfloat16* q) {
  LatentMaps maps{};
  maps.q = row_boxes(q, queries.sequences.capacity, std::int64_t{queries.heads} * kLatentWidth, queries.heads,
                     kLatentWidth, queries.item_tokens, queries.item_heads);
  maps.k =
      tensor_boxes<3>(queries.keys.k, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                      {64, static_cast<cuuint64_t>(queries.keys.rows), kLatentParts}, {kLatentWidth * 2, 128},
                      {64, kLatentBoxRows, kLatentParts}, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE);
  return maps;
}

// Launches the kernels, or returns false and does nothing if the device cannot run them or pages are no boxes.
[[nodiscard]] inline bool launch_latent_attention(LatentQueries queries, const __nv_bfloat16* q,
                                                  const LatentLaunch& plan, std::span<std::byte> workspace,
                                                  cudaStream_t stream) {
  if (queries.keys.block_size % kLatentBoxRows != 0) return false;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, wgmma_latent_attention), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < LatentShared::kThreads) return false;
  constexpr int kAsked = 128 * (2 * LatentShared::kRegisters + LatentShared::kCopyRegisters);
  HONE_ASSERT(attributes.numRegs * LatentShared::kThreads >= kAsked, "a thread is launched with ", attributes.numRegs,
              " registers; setmaxnreg would wait forever for more");
  if (queries.sequences.capacity == 0) return true;
  HONE_ASSERT(workspace.size() >= plan.workspace_bytes, "the workspace is too small: ", workspace.size(), " bytes");
  queries.item_heads = static_cast<std::int32_t>(plan.item_heads);
  queries.item_tokens = static_cast<std::int32_t>(plan.item_tokens);
  queries.kept = reinterpret_cast<float4*>(workspace.data());
  if (plan.shares_splits) {
    queries.splits = {reinterpret_cast<float*>(workspace.data()), static_cast<std::int32_t>(plan.splits), 1};
  }
  const std::int64_t all = plan.items * (plan.shares_splits ? plan.splits : 1);
  const std::int64_t blocks = std::min({all, std::int64_t{cuda_device().sm_count()}, kMostKeepingBlocks});
  const auto launch = [&](auto* kernel, unsigned threads, std::size_t bytes) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
               "cudaFuncSetAttribute");
    launch_dependent({static_cast<unsigned>(blocks), threads, bytes}, stream, kernel, queries, latent_maps(queries, q));
    check_launch("latent attention");
  };
  if (plan.narrow) {
    launch(narrow_latent_attention, NarrowShared::kThreads, NarrowShared::kBytes);
  } else {
    launch(wgmma_latent_attention, LatentShared::kThreads, LatentShared::kBytes);
  }
  if (!plan.shares_splits) return true;
  launch_dependent({static_cast<unsigned>(tiles_capacity(queries.sequences, queries.heads, 1)), kLatentRank / 4},
                   stream, latent_merge, queries);
  check_launch("latent attention: merge");
  return true;
}

}  // namespace hone
