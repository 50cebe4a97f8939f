// A two-layer model whose program is short enough to read as text.
#pragma once

#include "program/program.h"

namespace hone::test {

// Embeds "tokens" to x [tokens:8, 4], applies two layers
//   h = x + w_attention norm(x);  x = h + w_mlp norm(h)
// in the scopes that models use, and a final norm. All types are f32; the output is "y". Weights are named after their
// scopes.
[[nodiscard]] Program small_program();

// Appends the gradients of all weights, with input "dy" as the gradient of "y".
[[nodiscard]] Program with_gradients(Program program);

}  // namespace hone::test
