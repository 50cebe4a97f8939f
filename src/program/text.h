// The textual form of a Program: one line a bound value, a node or an output. Parsing the text of a program gives the
// same program, to the last bit of its attributes; names and scopes may hold any bytes (program/quoted.h).
//
//   %0: f32[16] = weight "norm" trainable
//   %1: f32[tokens:8, 16] = input "x"
//   %2: f32[tokens:8, 16], %3: f32[tokens:8] = rms_norm(%1, %0) {epsilon=1e-06} @layers.0 forward
//   output "y" = %2
//
// A count that no bound value declares has a line of its own, before the first value that counts by it: "count kept: 64
// = %7", or "count kept: 64" where the host says it.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"

namespace hone {

[[nodiscard]] std::string to_text(const Program& program);
// Throws Error with the line's number.
[[nodiscard]] Program program_from_text(std::string_view text, const OpRegistry& registry = op_registry());

}  // namespace hone
