// Low-rank adapters (Hu et al., "LoRA", 2021) of which each row of a batch has its own, or none: the row's slot says
// which of several stacked adapters it uses.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct SlotLoraIn {
  enum : std::size_t { y, x, slots, down, up };
};

// Returns y + h up_s^T, where h = x down_s^T and s is the row's slot, for y [rows, n], x [rows, k], slots i32 [rows],
// down [slots x q, k] and up [slots x n, q], all but the slots of one dtype; the scale is part of up. A row whose slot
// is negative is a copy of y. h is rounded to the dtype, and the sum with y is rounded again, as lora_linear does. A
// row has the same bits whatever the other rows and their slots are. Slots are below `slots`, the rows of down divided
// by q; a CPU asserts it, a GPU copies y. There is no gradient.
[[nodiscard]] Tensor slot_lora(Tensor y, Tensor x, Tensor slots, Tensor down, Tensor up);

}  // namespace hone
