// The groups over which the sums of a norm of divided gradients are added, the same on every device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/gradient_norm/gradient_norm.h"

namespace hone {

// In a data group each block is summed by one rank and 0 on the others, so that adding them rounds nothing. In a tensor
// or expert group each rank has the sums of its parts; the first rank alone has those of gradients that are whole in
// the group.
class NormGroups {
 public:
  explicit NormGroups(const GradientNormAttributes& division) : parts_(block_numbers(division.parts)) {
    if (division.data_group) add(current_collective(), kInAllGroups);
    if (division.tensor_group) add(current_tensor_collective(), GradientShare::kTensorPart);
    if (division.expert_group) add(current_expert_collective(), GradientShare::kExpertPart);
  }

  // Returns true if this rank adds the squares of gradient i.
  [[nodiscard]] bool counts(std::size_t i) const {
    for (const Group& each : groups_) {
      const bool is_part = each.bit == kInAllGroups || (parts_[i] & each.bit) != 0;
      if (!is_part && each.collective->rank() != 0) return false;
    }
    return true;
  }

  void add_up(std::byte* sums, std::size_t blocks) const {
    for (const Group& each : groups_) each.collective->all_reduce(sums, DType::kF64, blocks);
  }

 private:
  static constexpr std::int64_t kInAllGroups = 0;

  struct Group {
    Collective* collective;
    std::int64_t bit;  // of parts_
  };

  void add(Collective* collective, std::int64_t bit) {
    HONE_ASSERT(collective != nullptr, "a norm of divided gradients without a job");
    groups_.push_back({collective, bit});
  }

  std::vector<std::int64_t> parts_;  // [gradients]
  std::vector<Group> groups_;
};

}  // namespace hone
