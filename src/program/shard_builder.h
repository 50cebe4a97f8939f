// Interface through which an operation appends what one rank of a tensor group computes of one of its nodes.
// Implemented by the pass that divides a program over the group (passes/tensor_parallel.h), which visits the nodes in
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace hone {

// Division of a value over a tensor group: each rank has all of it, with the same bits, or each its part along a
// dimension. Parts are equal, and the value consists of sections that are divided separately (the gate and up columns
// of an MLP; query, key and value heads), so that a part has the form of the value with smaller sections.
inline constexpr std::int64_t kWhole = -1;
inline constexpr std::int64_t kDividedRows = 0;     // along dimension 0: rows of weights
inline constexpr std::int64_t kDividedColumns = 1;  // along dimension 1

class ShardBuilder {
 public:
  virtual ~ShardBuilder() = default;

  [[nodiscard]] virtual int ranks() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  // Returns what this rank has of an operand of the node; invalid for an optional input that is missing. If each rank
  // has an addend of it, appends their sum.
  [[nodiscard]] virtual Tensor input(std::size_t index) = 0;
  // Returns an operand that all ranks have whole, for an operation that is divided: its gradient is the sum of those of
  // the ranks (enter_ranks of ops/ranks). Operations that divide the same operand share it, and so the sum.
  [[nodiscard]] virtual Tensor entered(std::size_t index) = 0;
  // Returns this rank's addend of an operand that has been registered as such; invalid if the operand has another form.
  [[nodiscard]] virtual Tensor addend(std::size_t index) = 0;
  // The dimension along which the operand is divided, or kWhole; kWhole for a missing one.
  [[nodiscard]] virtual std::int64_t division(std::size_t index) const = 0;

  // Returns true if the operand is whole because columns of it, equal parts in the order of ranks, were gathered.
  [[nodiscard]] virtual bool is_gathered(std::size_t index) const = 0;

  // Appends a copy of the node with what this rank has of its operands.
  [[nodiscard]] virtual std::vector<Tensor> append(const Attributes& attributes) = 0;
  // The same with other operands.
  [[nodiscard]] virtual std::vector<Tensor> append(const Attributes& attributes, std::span<const Tensor> inputs) = 0;
  // Registers what this rank has of an output.
  virtual void set_output(std::size_t index, Tensor part, std::int64_t division) = 0;
  // Registers an output that is the sum over the ranks of what they have. It counts as whole: the ranks add it up where
  // it is read, and values that are added to each other once.
  virtual void set_addend(std::size_t index, Tensor addend) = 0;
  // The same with a bias, or none, that all ranks have. It is added to the sum, which is appended here.
  virtual void set_sum(std::size_t index, Tensor addend, Tensor bias) = 0;
  // Registers a whole output whose columns were gathered.
  virtual void set_gathered_output(std::size_t index, Tensor whole) = 0;

  // Returns true if this rank has its rows of the operand, or will have them of a sum (sequence parallelism,
  // ops/rank_rows). To an operation that knows nothing of rows the operand is whole: input() and entered() gather it.
  [[nodiscard]] virtual bool has_rows(std::size_t index) const = 0;
  // Returns this rank's rows of an operand with tokens, which are taken from a whole one, or a weight that enters. For
  // operations that compute each row of their outputs from the same row of their operands.
  [[nodiscard]] virtual Tensor rows(std::size_t index) = 0;
  // Registers this rank's rows of an output.
  virtual void set_rows(std::size_t index, Tensor rows) = 0;
};

// For nodes whose rows are computed alone: if this rank has its rows of an operand, appends a copy of the node with
// them, whose outputs are this rank's rows, and returns true. No operand may be divided in another way.
[[nodiscard]] inline bool shard_rows(ShardBuilder& builder, const Node& node) {
  bool any = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) any = any || builder.has_rows(i);
  if (!any) return false;
  std::vector<Tensor> inputs;
  inputs.reserve(node.inputs.size());
  for (std::size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(builder.rows(i));
  const std::vector<Tensor> outputs = builder.append(node.attributes, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) builder.set_rows(i, outputs[i]);
  return true;
}

// For nodes of which each rank computes the same, or the same columns of outputs as it has of its operands: appends a
// copy of the node and registers all outputs with this division.
inline void shard_alike(ShardBuilder& builder, const Attributes& attributes, std::int64_t division) {
  const std::vector<Tensor> outputs = builder.append(attributes);
  for (std::size_t i = 0; i < outputs.size(); ++i) builder.set_output(i, outputs[i], division);
}

}  // namespace hone
