// The optional input `accumulated` of the weight gradients of experts, i32[1]: 0 if no micro-batch of the step has
// written the gradient (GradientBuilder::accumulated). It is then written as if it were zero before, whatever it holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/kernel.h"

namespace hone {

// Throws Error in infer() if the input is given and not i32[1].
inline void expect_accumulated(InputTypes inputs, std::size_t index, std::string_view op) {
  const Type* flag = given(inputs, index);
  expect(flag == nullptr || *flag == Type{DType::kI32, {1}}, op,
         text_of("accumulated is ", flag != nullptr ? to_text(*flag) : "", "; expected i32[1]"));
}

// Returns the address of the flag in the memory of the device; null if the input is missing.
[[nodiscard]] inline const std::int32_t* accumulated_flag(const KernelCall& call, std::size_t index) {
  return index < call.inputs.size() && call.in(index) ? call.in(index).as<std::int32_t>() : nullptr;
}

// The traffic of a node with inputs up to `dweight` and perhaps `accumulated` in the first micro-batch of a step, which
// does not read a gradient that it overwrites.
[[nodiscard]] inline Cost first_traffic(Cost cost, InputTypes inputs, std::size_t index, const Type& dweight) {
  if (given(inputs, index) != nullptr) cost.bytes_read -= static_cast<double>(dweight.bytes());
  return cost;
}

}  // namespace hone
