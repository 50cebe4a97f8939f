// What the system knows of an operation. One folder of ops/ holds one Op and its kernels.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/attributes.h"
#include "program/type.h"

namespace hone {

class GradientBuilder;
struct Node;

// Work of one run of a node at full capacity.
struct Cost {
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
};

// An optional input that is not given has no type.
using InputTypes = std::span<const std::optional<Type>>;

class Op {
 public:
  virtual ~Op() = default;

  // As in the printed program: "rms_norm".
  [[nodiscard]] virtual std::string_view name() const = 0;
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

// All operations by name.
class OpRegistry {
 public:
  void add(const Op& op);                                    // op lives as long as the process
  [[nodiscard]] const Op& get(std::string_view name) const;  // throws Error with the nearest name
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::map<std::string, const Op*, std::less<>> ops_;
};

[[nodiscard]] OpRegistry& op_registry();

// Helpers for infer: each throws Error naming the operation.
[[nodiscard]] const Type& required(InputTypes inputs, std::size_t index, std::string_view op);
void expect(bool condition, std::string_view op, const std::string& what);

}  // namespace hone
