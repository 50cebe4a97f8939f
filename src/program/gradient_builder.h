// What an operation sees while it writes its backward pass. passes/gradient.h drives it.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;

  [[nodiscard]] virtual Program& program() = 0;
  // The node's own operands.
  [[nodiscard]] virtual Tensor input(std::size_t index) = 0;
  [[nodiscard]] virtual Tensor output(std::size_t index) = 0;
  // The gradient that arrived at an output; invalid where none did.
  [[nodiscard]] virtual Tensor output_gradient(std::size_t index) = 0;
  // Whether the gradient of this input is wanted. Never true for an input that is not given.
  [[nodiscard]] virtual bool needs(std::size_t index) = 0;
  // Hands in the gradient of an activation; several are summed in the order of arrival.
  virtual void add(std::size_t index, Tensor gradient) = 0;
  // Of a trainable weight: its gradient so far (in f32; f64 in programs of f64) and, after the node that added to it in
  // place, as it is now. Of an activation in a weight's place: zeros, and its gradient from this node.
  [[nodiscard]] virtual Tensor accumulator(std::size_t index) = 0;
  virtual void set_accumulator(std::size_t index, Tensor updated) = 0;
};

}  // namespace hone
