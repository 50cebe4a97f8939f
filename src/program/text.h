// Text format of a Program, with one line for each bound value, node and output. The format is lossless: parsing the
// text of a program returns the same program, with bit-identical attributes. Names and scopes may contain any bytes
// (program/quoted.h).
//
//   %0: f32[16] = weight "norm" trainable
//   %1: f32[tokens:8, 16] = input "x"
//   %2: f32[tokens:8, 16], %3: f32[tokens:8] = rms_norm(%1, %0) {epsilon=1e-06} @layers.0 forward
//   output "y" = %2
//
// A count that no bound value declares has a separate line before the first value that uses it: "count kept: 64 = %7",
// or "count kept: 64" if the host sets it. Empty lines and lines that begin with # are ignored.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"

namespace hone {

[[nodiscard]] std::string to_text(const Program& program);
// Parses the text. Throws Error with the number of the line.
[[nodiscard]] Program program_from_text(std::string_view text, const OpRegistry& registry = op_registry());

}  // namespace hone
