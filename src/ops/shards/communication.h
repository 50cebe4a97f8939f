// The communication of the operations on shares, the same on every device.
#pragma once

#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/shards/shards.h"
#include "program/kernel.h"

namespace hone {

[[nodiscard]] inline Collective& job_of_shares() {
  HONE_ASSERT(current_collective() != nullptr, "a program with shares of weights runs without a job");
  return *current_collective();
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
  Collective& job = job_of_shares();
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

// shards_gather_wait
inline void wait_for_gather(const KernelCall& call) { job_of_shares().wait(slot_of_shares(call)); }

// shards_sum
inline void start_sum(const KernelCall& call) {
  Collective& job = job_of_shares();
  const std::vector<RowCuts> tensors = row_cuts(call.attributes_as<ShardsAttributes>());
  job.start(slot_of_shares(call), [&] {
    job.together([&] {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        job.reduce_scatter(call.out(i).data, tensors[i].whole.dtype, parts_of(tensors[i]));
      }
    });
  });
}

}  // namespace hone
