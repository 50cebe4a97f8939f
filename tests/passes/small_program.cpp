#include "passes/small_program.h"

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

constexpr std::int64_t kWidth = 4;

// x + W norm(x)
Tensor block(Program& program, const char* name, Tensor x) {
  const Scope scope(program, name);
  const std::string prefix = program.scope();
  const Tensor h = rms_norm(x, program.weight(prefix + ".norm", {DType::kF32, {kWidth}}), {});
  return x + linear(h, program.weight(prefix + ".matrix", {DType::kF32, {kWidth, kWidth}}));
}

}  // namespace

Program small_program() {
  register_operations();
  Program program;
  const Tensor tokens = program.input("tokens", {DType::kI32, {{8, Count::tokens}}});
  Tensor x = embedding(tokens, program.weight("embedding", {DType::kF32, {16, kWidth}}));
  for (int layer = 0; layer < 2; ++layer) {
    const Scope scope(program, text_of("layers.", layer));
    x = block(program, "attention", x);
    x = block(program, "mlp", x);
  }
  program.output("y", rms_norm(x, program.weight("norm", {DType::kF32, {kWidth}}), {}));
  return program;
}

Program with_gradients(Program program) {
  const Tensor y = program.tensor(program.outputs().front().value);
  const GradientSeed seed{y, program.input("dy", y.type())};
  append_gradients(program, {&seed, 1});
  return program;
}

}  // namespace hone::test
