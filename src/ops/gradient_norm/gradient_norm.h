// L2 norm over all gradients of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace hone {

// Elements of a tensor whose squares are summed as one block. Shares of gradients begin at multiples of it, so that the
// sums of the blocks, and with them the norm, do not depend on the division.
inline constexpr std::int64_t kNormBlock = std::int64_t{1} << 15;

// The place of divided gradients among the whole ones; empty if a process has all gradients whole.
struct GradientNormAttributes {
  std::string blocks;       // numbers of blocks of the whole tensors, "3,1"
  std::string firsts;       // for each gradient: its first block, counted over all whole tensors
  bool data_group = false;  // the ranks of the data group have rows of each gradient
  // The ranks of the tensor group, and of the expert group, have parts of some gradients.
  bool tensor_group = false;
  bool expert_group = false;
  std::string parts;  // GradientShare::parts of each gradient; empty: there is neither group

  template <class Visitor>
  void fields(Visitor& v) {
    v("blocks", blocks);
    v("firsts", firsts);
    v("data_group", data_group);
    v("tensor_group", tensor_group);
    v("expert_group", expert_group);
    v("parts", parts);
  }
};

// The rows of one rank of a gradient.
struct GradientShare {
  Tensor rows;
  std::int64_t first = 0;     // its first element in the whole gradient, a multiple of kNormBlock
  std::int64_t elements = 0;  // of the whole gradient
  // The whole gradient is a rank's part of a weight in its tensor group, its expert group or both; otherwise all ranks
  // of the group have the same.
  static constexpr std::int64_t kTensorPart = 1;
  static constexpr std::int64_t kExpertPart = 2;
  std::int64_t parts = 0;
};

// The groups of a job over which gradients are divided.
struct GradientGroups {
  bool data = true;
  bool tensor = false;
  bool experts = false;
};

// Returns the norm [1], f32 (f64 if the gradients are f64), of at least one floating tensor; either all are f64 or none
// is. Squares are summed in double in a fixed order that follows from the sizes of the tensors.
[[nodiscard]] Tensor gradient_norm(std::span<const Tensor> gradients);
// Returns the same norm of gradients that are divided over the ranks of a job, which all call it. On the CPU a division
// over the data group leaves the bits of the norm of whole gradients in the same order. A division over the tensor
// group has another order of sums: the squares of a block are those of each rank's part, which are then added. All
// ranks get the same bits.
[[nodiscard]] Tensor divided_gradient_norm(std::span<const GradientShare> gradients, const GradientGroups& groups = {});

// Reads lists of the attributes, for kernels.
[[nodiscard]] std::vector<std::int64_t> block_numbers(const std::string& text);
// Blocks of the whole tensors of divided gradients; 0 if the gradients are whole.
[[nodiscard]] std::size_t divided_blocks(const GradientNormAttributes& division);
[[nodiscard]] constexpr std::int64_t norm_blocks(std::int64_t elements) {
  return (elements + kNormBlock - 1) / kNormBlock;
}

}  // namespace hone
