// Interface of an operation: its types, cost, backward pass and fusions. Each folder of ops/ holds one Op and its
// kernels, which are registered separately (program/kernel.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/attributes.h"
#include "program/type.h"

namespace hone {

class ContextBuilder;
class GradientBuilder;
class ShardBuilder;
class Program;
struct Node;

// Work of one run of a node with all rows in use.
struct Cost {
  double flops = 0;
  double pair_flops = 0;  // part of flops that grows with pairs of tokens, counted as if all were one sequence
  double bytes_read = 0;
  double bytes_written = 0;
};

// Match of a fused operation: the nodes of a program that one fused node replaces.
struct Fusion {
  std::vector<std::size_t> nodes;    // ascending indices; the fused node is inserted at the first
  std::vector<std::int32_t> inputs;  // values of the program, the inputs of the fused node
  Attributes attributes;
  std::vector<std::pair<std::int32_t, std::size_t>> outputs;  // old value and index of the fused output replacing it
};

// Types of a node's inputs; nullopt for an optional input that is missing.
using InputTypes = std::span<const std::optional<Type>>;

// Categories by which profiles group operations.
enum class OpCategory : std::uint8_t {
  kGemm,
  kAttention,
  kNormalization,
  kRope,
  kActivation,
  kElementwise,
  kLoss,
  kOptimizer,
  kCommunication,
  kMemory,
  kOther,  // other operations, and the time between operations
};
inline constexpr std::array<std::string_view, 11> kCategories{
    "GEMM", "attention", "normalization", "RoPE",   "activation", "elementwise",
    "loss", "optimizer", "communication", "memory", "other"};
[[nodiscard]] constexpr std::string_view name_of(OpCategory category) {
  return kCategories[static_cast<std::size_t>(category)];
}

class Op {
 public:
  virtual ~Op() = default;

  // Name in the text of programs: "rms_norm".
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual OpCategory category() const = 0;
  [[nodiscard]] virtual Attributes default_attributes() const { return {}; }

  // Returns the types of the outputs. Throws Error, naming what is expected and what was seen, if the inputs do not
  // fit.
  [[nodiscard]] virtual std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const = 0;

  // Appends the backward pass of `node` (passes/gradient.h). The default throws Defect: the operation has no gradient.
  virtual void gradient(GradientBuilder& builder, const Node& node) const;

  // Appends what one rank of a tensor group computes of `node`, some of whose operands are divided over the group
  // (program/shard_builder.h). The default copies the node if no operand is divided, and otherwise throws Error: the
  // operation cannot be divided.
  virtual void shard(ShardBuilder& builder, const Node& node) const;

  // Returns true if the rows of some tokens can be computed without those of others, and outputs without Count::tokens
  // are sums over the tokens. Each rank of a context group then computes the rows of its tokens.
  [[nodiscard]] virtual bool is_token_wise() const { return false; }
  // Appends what one rank of a context group, whose ranks have different tokens, computes of `node`, which has operands
  // or outputs with Count::tokens (program/context_builder.h). The default copies the node if it is token-wise, and
  // otherwise throws Error: the tokens of the operation cannot be divided.
  virtual void divide_tokens(ContextBuilder& builder, const Node& node) const;

  // The default is no FLOPs, every input read once and every output written once.
  [[nodiscard]] virtual Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const;

  // Returns the index of the input whose storage this output shares (an in-place update or a view); nullopt if the
  // output has its own storage.
  [[nodiscard]] virtual std::optional<std::size_t> alias(std::size_t output) const {
    (void)output;
    return std::nullopt;
  }
  // Returns true if the operation launches nothing and its output is the aliased input with another type.
  [[nodiscard]] virtual bool is_view() const { return false; }
};

// Operation that computes several nodes of other operations in one kernel.
class FusedOp : public Op {
 public:
  // Priority of the fusion, unique among all fused operations. At each node the fused operations are tried in ascending
  // order, and the first match is used. Values are 100 apart, so that further operations can be placed between them.
  [[nodiscard]] virtual int fusion_priority() const = 0;
  // Returns a match that begins with the node at index `first`, or nullopt. `outputs` of the match must include every
  // output of its nodes that other nodes use.
  [[nodiscard]] virtual std::optional<Fusion> fuse(const Program& program, std::size_t first) const = 0;
};

// Table of all operations by name.
class OpRegistry {
 public:
  void add(const Op& op);                                    // op must live as long as the process
  [[nodiscard]] const Op& get(std::string_view name) const;  // throws Error that suggests the nearest name
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<const FusedOp*> fused() const;  // in ascending order of fusion_priority()

 private:
  std::map<std::string, const Op*, std::less<>> ops_;
};

[[nodiscard]] OpRegistry& op_registry();

// Helpers of infer(); their errors name the operation.
//
// Returns the type of an input; throws Error if it is missing.
[[nodiscard]] const Type& required(InputTypes inputs, std::size_t index, std::string_view op);
// Returns the type of an optional input; null if it is missing.
[[nodiscard]] const Type* given(InputTypes inputs, std::size_t index);
// Checks attributes that are numbers of heads, rows and so on: throws Error if one is beyond +-2^30, so that products
// of two of them, or of one and a dimension, cannot overflow 64 bits.
void expect_sizes(std::string_view op, std::initializer_list<std::int64_t> sizes);
// Throws Error with the text `what` if the condition is false.
void expect(bool condition, std::string_view op, const std::string& what);

}  // namespace hone
