// Rows of a table by index.
#pragma once

#include "program/program.h"

namespace hone {

// tokens i32 [rows], each in [0, vocab), weight [vocab, hidden] -> [rows, hidden]. Rows past the count are zero. The
// weight's gradient is summed in the order of rows.
[[nodiscard]] Tensor embedding(Tensor tokens, Tensor weight);

}  // namespace hone
