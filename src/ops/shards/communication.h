// The communication of the operations on shares, the same on every device.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/shards/shards.h"
#include "program/kernel.h"

namespace hone {

[[nodiscard]] inline Collective& ranks_of_shares(const KernelCall& call) {
  const bool same_experts = call.attributes_as<ShardsAttributes>().same_experts;
  Collective* const ranks = same_experts ? current_same_experts_collective() : current_collective();
  HONE_ASSERT(ranks != nullptr, "a program with shares of weights runs without a job");
  return *ranks;
}

// Returns the ranges of bytes of a whole tensor that the ranks have, [ranks].
[[nodiscard]] inline std::vector<ByteRange> parts_of(const RowCuts& tensor) {
  const std::size_t row = static_cast<std::size_t>(tensor.whole.row_size()) * size_of(tensor.whole.dtype);
  std::vector<ByteRange> parts;
  for (std::size_t r = 0; r + 1 < tensor.cuts.size(); ++r) {
    parts.push_back(
        {static_cast<std::size_t>(tensor.cuts[r]) * row, static_cast<std::size_t>(tensor.cuts[r + 1]) * row});
  }
  return parts;
}

[[nodiscard]] inline int slot_of_shares(const KernelCall& call) {
  return static_cast<int>(call.attributes_as<ShardsAttributes>().slot);
}

// shards_gather: copies this rank's rows to their places, then those of the others.
inline void start_gather(const KernelCall& call) {
  Collective& job = ranks_of_shares(call);
  const std::vector<RowCuts> tensors = row_cuts(call.attributes_as<ShardsAttributes>());
  job.start(slot_of_shares(call), [&] {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const ByteRange mine = parts_of(tensors[i]).at(static_cast<std::size_t>(job.rank()));
      job.copy(call.out(i).data + mine.begin, call.in(i).data, mine.end - mine.begin);
    }
    job.together([&] {
      for (std::size_t i = 0; i < tensors.size(); ++i) job.all_gather(call.out(i).data, parts_of(tensors[i]));
    });
  });
}

// shards_gather_wait and shards_sum_whole_wait
inline void wait_for_work(const KernelCall& call) { ranks_of_shares(call).wait(slot_of_shares(call)); }

// Tensors that follow each other in memory, with the zeros that align them.
struct SummedRegion {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  DType dtype = DType::kF32;
};

// Returns the regions of tensors of a store, in the order of their addresses.
[[nodiscard]] inline std::vector<SummedRegion> regions_of(std::span<const TensorView> tensors) {
  std::vector<TensorView> sorted(tensors.begin(), tensors.end());
  std::ranges::sort(sorted, {}, &TensorView::data);
  std::vector<SummedRegion> regions;
  for (const TensorView& tensor : sorted) {
    const std::size_t bytes = tensor.type->bytes();
    const bool follows = !regions.empty() && regions.back().dtype == tensor.dtype() &&
                         regions.back().data + align_up(regions.back().bytes) == tensor.data;
    if (!follows) {
      regions.push_back({tensor.data, bytes, tensor.dtype()});
    } else {
      regions.back().bytes = align_up(regions.back().bytes) + bytes;
    }
  }
  return regions;
}

// shards_sum_whole
inline void start_sum_whole(const KernelCall& call) {
  Collective& job = ranks_of_shares(call);
  job.start(slot_of_shares(call), [&] {
    job.together([&] {
      for (const SummedRegion& region : regions_of(call.outputs)) {
        job.all_reduce(region.data, region.dtype, region.bytes / size_of(region.dtype));
      }
    });
  });
}

// shards_sum
inline void start_sum(const KernelCall& call) {
  Collective& job = ranks_of_shares(call);
  const std::vector<RowCuts> tensors = row_cuts(call.attributes_as<ShardsAttributes>());
  job.start(slot_of_shares(call), [&] {
    job.together([&] {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        job.reduce_scatter(call.out(i).data, tensors[i].whole.dtype, parts_of(tensors[i]));
      }
    });
  });
}

// shards_add: waits for the sums and calls add(i, rows, bytes) for the rows of each whole tensor that this rank has.
template <class Add>
void wait_and_add(const KernelCall& call, const Add& add) {
  Collective& job = ranks_of_shares(call);
  job.wait(slot_of_shares(call));
  const std::vector<RowCuts> tensors = row_cuts(call.attributes_as<ShardsAttributes>());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ByteRange mine = parts_of(tensors[i]).at(static_cast<std::size_t>(job.rank()));
    if (mine.begin == mine.end) continue;
    add(i, call.in(ShardsAddIn::whole(i)).data + mine.begin, mine.end - mine.begin);
  }
}

// Registers the operations on shares. Only shards_add differs between devices: `add`.
inline void register_shards(KernelRegistry& registry, DeviceKind device, void (*add)(const KernelCall&)) {
  registry.add("shards_gather", device, {start_gather, {}});
  registry.add("shards_gather_wait", device, {wait_for_work, {}});
  registry.add("shards_sum", device, {start_sum, {}});
  registry.add("shards_sum_whole", device, {start_sum_whole, {}});
  registry.add("shards_sum_whole_wait", device, {wait_for_work, {}});
  registry.add("shards_add", device, {add, {}});
}

}  // namespace hone
