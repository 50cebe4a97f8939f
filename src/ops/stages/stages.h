// Operations of the stages of a pipeline: a stage keeps what it receives and sends in states, and the norm of a
// gradient is that of all stages.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs of stages_keep.
struct StagesKeepIn {
  enum : std::size_t { x, home };
};

// Copies x, the rows past its count included, to the state `home` of the same type, and returns home.
Tensor keep(Tensor x, Tensor home);

// Returns the norm [1] of a vector whose parts on the stages have the norms x [1]: the root of the sum of their
// squares, which are added in double in the order of the stages. The same bits on all stages, which all call it.
[[nodiscard]] Tensor norm_of_stages(Tensor x);

}  // namespace hone
