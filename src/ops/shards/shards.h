// Weights and gradients that are divided over the ranks of a job (ZeRO stages 2 and 3, Rajbhandari et al., "ZeRO:
// Memory optimizations toward training trillion parameter models", 2020): whole weights are gathered for a while, and
// whole gradients are summed into the shares of their owners. Both run next to the device's other work from a start to
// a wait.
//
// The ranks of a job must run the same of these operations in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace hone {

// Division of a tensor: rank r has the rows cuts[r] to cuts[r + 1] - 1.
struct RowCuts {
  Type whole;
  std::vector<std::int64_t> cuts;  // [ranks + 1], ascending from 0 to the number of rows
};

// Indices of the inputs of shards_add: the share of tensor i, and the whole tensor.
struct ShardsAddIn {
  [[nodiscard]] static constexpr std::size_t share(std::size_t i) { return 2 * i; }
  [[nodiscard]] static constexpr std::size_t whole(std::size_t i) { return 2 * i + 1; }
};

// The ranks that have rows of a tensor or addends of a sum: those of the data group, or those among them that have this
// rank's experts.
enum class ShardGroup : std::uint8_t { kData, kSameExperts };

// `slot` identifies an operation from its start to its wait; operations of a group that overlap have different slots.
struct ShardsAttributes {
  std::int64_t slot = 0;
  bool same_experts = false;  // ShardGroup::kSameExperts
  std::string types;          // whole types of the tensors, as to_text prints them, separated by ";"
  std::string cuts;           // cuts of the tensors, "0,2,4;0,8,8"

  template <class Visitor>
  void fields(Visitor& v) {
    v("slot", slot);
    v("same_experts", same_experts);
    v("types", types);
    v("cuts", cuts);
  }
};

// Returns the type of the rows of a rank.
[[nodiscard]] Type share_of(const RowCuts& tensor, int rank);

// Starts gathering whole tensors from the shares of all ranks and returns them; they must not be read before the wait.
// shares[i]: this rank's rows of tensor i.
[[nodiscard]] std::vector<Tensor> gather_shares(std::span<const Tensor> shares, std::span<const RowCuts> tensors,
                                                std::int64_t slot, ShardGroup group = ShardGroup::kData);
// Waits for it and returns the tensors.
[[nodiscard]] std::vector<Tensor> wait_for_shares(std::span<const Tensor> gathered, std::int64_t slot,
                                                  ShardGroup group = ShardGroup::kData);

// Starts replacing each rank's rows of whole tensors by their sums over all ranks. The other rows are undefined
// afterwards.
[[nodiscard]] std::vector<Tensor> sum_shares(std::span<const Tensor> whole, std::span<const RowCuts> tensors,
                                             std::int64_t slot, ShardGroup group = ShardGroup::kData);
// Waits for it and adds this rank's rows of whole[i] to shares[i], in place. Returns the updated shares.
[[nodiscard]] std::vector<Tensor> add_shares(std::span<const Tensor> whole, std::span<const Tensor> shares,
                                             std::span<const RowCuts> tensors, std::int64_t slot,
                                             ShardGroup group = ShardGroup::kData);

// Starts replacing whole tensors by their sums over all ranks, in place.
[[nodiscard]] std::vector<Tensor> sum_whole(std::span<const Tensor> tensors, std::int64_t slot,
                                            ShardGroup group = ShardGroup::kData);
// Waits for it and returns the tensors.
[[nodiscard]] std::vector<Tensor> wait_for_sums(std::span<const Tensor> tensors, std::int64_t slot,
                                                ShardGroup group = ShardGroup::kData);

// Reads the attributes back, for kernels.
[[nodiscard]] std::vector<RowCuts> row_cuts(const ShardsAttributes& attributes);

}  // namespace hone
