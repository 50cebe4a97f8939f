// The optional input `accumulated` of weight gradients, f32[1]: 0 if no micro-batch of the step has written the
// gradient (GradientBuilder::accumulated), otherwise 1. With 0 it is written as if it were zero before, whatever it
// holds. A float, so that libraries read it as the factor of what is there.
#pragma once

#include <cstddef>

#include "program/kernel.h"

namespace hone {

// Throws Error in infer() if the input is given and not f32[1].
inline void expect_accumulated(InputTypes inputs, std::size_t index, std::string_view op) {
  const Type* flag = given(inputs, index);
  expect(flag == nullptr || *flag == Type{DType::kF32, {1}}, op,
         text_of("accumulated is ", flag != nullptr ? to_text(*flag) : "", "; expected f32[1]"));
}

// Returns the address of the flag in the memory of the device; null if the input is missing.
[[nodiscard]] inline const float* accumulated_flag(const KernelCall& call, std::size_t index) {
  return index < call.inputs.size() && call.in(index) ? call.in(index).as<float>() : nullptr;
}

// Returns, on the CPU, true if the node adds to what the gradient holds.
[[nodiscard]] inline bool adds_to_gradient(const KernelCall& call, std::size_t index) {
  const float* const flag = accumulated_flag(call, index);
  return flag == nullptr || *flag != 0;
}

// The traffic of a node with inputs up to `dweight` and perhaps `accumulated` in the first micro-batch of a step, which
// does not read a gradient that it overwrites.
[[nodiscard]] inline Cost first_traffic(Cost cost, InputTypes inputs, std::size_t index, const Type& dweight) {
  if (given(inputs, index) != nullptr) cost.bytes_read -= static_cast<double>(dweight.bytes());
  return cost;
}

}  // namespace hone
