// The pass that divides the tokens of a traced program over a context group: each rank computes some tokens of every
// document and attends to the keys and values of all ranks, which are gathered (Llama Team, "The Llama 3 herd of
// models", 2024, section 3.3.2). Model code knows nothing of it; each operation's rule (Op::divide_tokens) says what a
// rank computes of a node.
#pragma once

#include "program/program.h"

namespace hone {

// Returns what each rank of a context group computes of a program before any other pass. A value with Count::tokens has
// the rows of this rank's tokens: ceil(capacity / ranks). Outputs, which have no such rows, are this rank's addends.
// The new program has ContextInputs too (program/context_builder.h). Which tokens a rank has is data of each run.
// Throws Error that names an operation whose tokens cannot be divided.
[[nodiscard]] Program divide_tokens(const Program& program, int ranks);

}  // namespace hone
