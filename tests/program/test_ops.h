// Operations that exist for tests alone, to make programs of any form: outputs of any size with any workspace, updates
// in place, views. Each makes its output out of every byte of its inputs, so that a damaged input shows.
#pragma once

#include <cstdint>
#include <span>

#include "program/program.h"

namespace hone::test {

// Up to 3 inputs of u8 -> u8 [size]; uses `workspace` bytes meanwhile.
[[nodiscard]] Tensor mix(Program& program, std::span<const Tensor> inputs, std::int64_t size, std::int64_t workspace);
// (x, other) -> x changed in place.
[[nodiscard]] Tensor mix_in_place(Tensor x, Tensor other);
// x [n] -> [n, 1], in the storage of x.
[[nodiscard]] Tensor view_as_column(Tensor x);

}  // namespace hone::test
