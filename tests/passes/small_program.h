// A two-layer model small enough to read as text.
#pragma once

#include "program/program.h"

namespace hone::test {

// The embeddings x [tokens:8, 4] of "tokens" through two layers of
//   h = x + w_attention norm(x);  x = h + w_mlp norm(h)
// under the scopes that models use, then a norm. f32; output "y". Weights are named as their scopes.
[[nodiscard]] Program small_program();

// Its training program so far: the sum of "y" weighted by "dy", and every weight's gradient.
[[nodiscard]] Program with_gradients(Program program);

}  // namespace hone::test
