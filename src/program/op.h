// What the system knows of an operation. One folder of ops/ holds one Op and its kernels.
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

class GradientBuilder;
class Program;
struct Node;

// Work of one run of a node at full capacity.
struct Cost {
  double flops = 0;
  double pair_flops = 0;  // of flops: those of pairs of a sequence's tokens, as if all tokens were one sequence
  double bytes_read = 0;
  double bytes_written = 0;
};

// Nodes of a program that one node of a fused operation can stand for.
struct Fusion {
  std::vector<std::size_t> nodes;    // indices, ascending; the fused node takes the first's place
  std::vector<std::int32_t> inputs;  // values of the program
  Attributes attributes;
  std::vector<std::pair<std::int32_t, std::size_t>> outputs;  // an old value, and the fused output that replaces it
};

// An optional input that is not given has no type.
using InputTypes = std::span<const std::optional<Type>>;

// What an operation is for, as profiles sort it.
enum class OpCategory : std::uint8_t {
  gemm,
  attention,
  normalization,
  rope,
  activation,
  elementwise,
  loss,
  optimizer,
  communication,
  memory,
  other,  // none of these, and what lies between operations
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

  // As in the printed program: "rms_norm".
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual OpCategory category() const = 0;
  [[nodiscard]] virtual Attributes default_attributes() const { return {}; }

  // Types of the outputs. Throws Error naming both sides where the inputs do not fit.
  [[nodiscard]] virtual std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const = 0;

  // Appends the backward pass of `node` (passes/gradient.h). Without one, the operation stops gradients with an error.
  virtual void gradient(GradientBuilder& builder, const Node& node) const;

  // By default no FLOPs, every input read once and every output written once.
  [[nodiscard]] virtual Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const;

  // The input in whose storage this output lies (an update in place, or a view), or nothing.
  [[nodiscard]] virtual std::optional<std::size_t> alias(std::size_t output) const {
    (void)output;
    return std::nullopt;
  }
  // A view computes nothing: its output is its aliased input under another type.
  [[nodiscard]] virtual bool is_view() const { return false; }
};

// An operation that stands for several nodes of others.
class FusedOp : public Op {
 public:
  // At each node the fused operations are asked in ascending order of their places, and the first that matches is
  // taken. No two have the same place; those that there are lie 100 apart, so that others go between them.
  [[nodiscard]] virtual int fusion_place() const = 0;
  // Whether the nodes that begin at index `first` are an instance of it. Every output of those nodes that is used
  // elsewhere must be among `outputs`.
  [[nodiscard]] virtual std::optional<Fusion> fuse(const Program& program, std::size_t first) const = 0;
};

// All operations by name.
class OpRegistry {
 public:
  void add(const Op& op);                                    // op lives as long as the process
  [[nodiscard]] const Op& get(std::string_view name) const;  // throws Error with the nearest name
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<const FusedOp*> fused() const;  // by place, ascending

 private:
  std::map<std::string, const Op*, std::less<>> ops_;
};

[[nodiscard]] OpRegistry& op_registry();

// Helpers for infer: each throws Error naming the operation.
[[nodiscard]] const Type& required(InputTypes inputs, std::size_t index, std::string_view op);
// For attributes that count heads, rows and the like: none lies so far from 0 that a product of two, or of one and a
// dimension, could overflow.
void expect_sizes(std::string_view op, std::initializer_list<std::int64_t> sizes);
void expect(bool condition, std::string_view op, const std::string& what);

}  // namespace hone
