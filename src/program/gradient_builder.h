// Interface through which an operation appends the backward pass of one of its nodes to a program. Implemented by the
// gradient pass (passes/gradient.h), which visits the nodes in reverse order.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;

  [[nodiscard]] virtual Program& program() = 0;
  // Operands of the forward node; invalid for an optional input that is missing.
  [[nodiscard]] virtual Tensor input(std::size_t index) = 0;
  [[nodiscard]] virtual Tensor output(std::size_t index) = 0;
  // Gradient of the loss with respect to an output; invalid if the loss does not depend on it.
  [[nodiscard]] virtual Tensor output_gradient(std::size_t index) = 0;
  // Returns true if the gradient of this input is needed; always false for a missing input.
  [[nodiscard]] virtual bool needs(std::size_t index) = 0;
  // Adds a gradient of an input that is an activation. Several gradients are summed in the order of the calls.
  virtual void add(std::size_t index, Tensor gradient) = 0;
  // Gradients of weights are accumulated in place. accumulator() returns the gradient so far of a trainable weight (its
  // type is gradient_type() of passes/gradient.h), the operation appends a node that adds to it, and set_accumulator()
  // registers the output of that node. For an activation used as a weight, accumulator() returns zeros, and
  // set_accumulator() registers its gradient from this node.
  [[nodiscard]] virtual Tensor accumulator(std::size_t index) = 0;
  virtual void set_accumulator(std::size_t index, Tensor updated) = 0;
  // Flag f32[1] that the node to append must read if it is the first to write a gradient that micro-batches overwrite:
  // 0 if no micro-batch of the step has written it, so that the node must ignore what accumulator() holds, and 1
  // otherwise. Invalid if the node always adds. May be called until set_accumulator().
  [[nodiscard]] virtual Tensor accumulated(std::size_t index) = 0;
};

}  // namespace hone
