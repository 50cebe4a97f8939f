// Operations for tests of memory planning and execution: outputs of any size with any workspace, in-place updates and
// views. Every byte of the inputs affects the output, so that tests detect an input that was overwritten.
#pragma once

#include <cstdint>
#include <span>

#include "program/program.h"

namespace hone::test {

// Computes u8[size] from up to 3 inputs of u8, with `workspace` bytes of scratch memory.
[[nodiscard]] Tensor mix(Program& program, std::span<const Tensor> inputs, std::int64_t size, std::int64_t workspace);
// Updates x in place by x and `other`.
[[nodiscard]] Tensor mix_in_place(Tensor x, Tensor other);
// Views x [n] as [n, 1].
[[nodiscard]] Tensor view_as_column(Tensor x);

}  // namespace hone::test
