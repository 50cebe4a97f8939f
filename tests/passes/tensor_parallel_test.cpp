// Tests of the pass that divides a program over a tensor group, with rows divided between its sums (sequence
// parallelism): the result on a small program, compared as text with tests/fixtures/passes.
#include "passes/tensor_parallel.h"

#include <gtest/gtest.h>

#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "passes/gather_again.h"
#include "passes/small_program.h"
#include "program/shard_builder.h"
#include "program/text.h"
#include "support/golden.h"

namespace hone::test {
namespace {

constexpr std::int64_t kStreamWidth = 4;
constexpr std::int64_t kInnerWidth = 8;

// Embeds "tokens" to x [tokens:8, 4], applies one layer x + down(up(norm(x))), and a final norm.
Program one_layer() {
  register_operations();
  Program program;
  const Tensor tokens = program.input("tokens", {DType::kI32, {{8, Count::tokens}}});
  Tensor x = embedding(tokens, program.weight("embedding", {DType::kF32, {16, kStreamWidth}}));
  {
    const Scope scope(program, "layers.0.mlp");
    const Tensor h = rms_norm(x, program.weight("mlp.norm", {DType::kF32, {kStreamWidth}}), {});
    const Tensor up = linear(h, program.weight("up", {DType::kF32, {kInnerWidth, kStreamWidth}}));
    x = x + linear(up, program.weight("down", {DType::kF32, {kStreamWidth, kInnerWidth}}));
  }
  program.output("y", rms_norm(x, program.weight("norm", {DType::kF32, {kStreamWidth}}), {}));
  return program;
}

TensorDivision half(bool rows) {
  return {.rank = 1,
          .ranks = 2,
          .rows = rows,
          .weights = {{"embedding", kDividedRows}, {"up", kDividedRows}, {"down", kDividedColumns}},
          .states = {}};
}

TEST(TensorParallelPass, Golden) {
  expect_golden("passes/tensor_parallel.txt", to_text(divide_over_ranks(one_layer(), half(false))));
}

TEST(TensorParallelPass, GoldenOfDividedRows) {
  const Program divided = divide_over_ranks(one_layer(), half(true));
  expect_golden("passes/sequence_parallel.txt", to_text(divided));
  expect_golden("passes/sequence_parallel_gradients.txt", to_text(gather_again(with_gradients(divided))));
}

TEST(TensorParallelPass, TextOfDividedRowsIsReadBack) {
  const std::string text = to_text(gather_again(with_gradients(divide_over_ranks(one_layer(), half(true)))));
  EXPECT_EQ(to_text(program_from_text(text)), text);
}

// Values that have no rows of tokens are divided as without the key.
TEST(TensorParallelPass, RowsWithoutTokensStayWhole) {
  register_operations();
  const auto divided = [](bool rows) {
    Program program;
    const Tensor x = program.input("x", {DType::kF32, {6, kInnerWidth}});
    const Tensor up = linear(x, program.weight("up", {DType::kF32, {kInnerWidth, kInnerWidth}}));
    program.output("y", linear(up, program.weight("down", {DType::kF32, {kStreamWidth, kInnerWidth}})));
    return to_text(divide_over_ranks(program, half(rows)));
  };
  EXPECT_EQ(divided(true), divided(false));
}

}  // namespace
}  // namespace hone::test
