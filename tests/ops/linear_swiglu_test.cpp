#include "ops/linear_swiglu/linear_swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/linear/linear.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/swiglu/swiglu.h"
#include "passes/fusion.h"

namespace hone::test {
namespace {

OpCase linear_swiglu_case(std::int64_t rows, std::int64_t k, std::int64_t n, bool with_bias) {
  OpCase op_case{
      .name = "linear_swiglu_" + std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n) +
              (with_bias ? "_bias" : ""),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, k}}}, {"weight", {DType::kF32, {2 * n, k}}, true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {linear_swiglu(in[0], in[1], with_bias ? in[2] : Tensor())};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            const auto product = [&](std::int64_t row, std::int64_t j) {
              double sum = with_bias ? in[2][j] : 0.0;
              for (std::int64_t i = 0; i < k; ++i) sum += in[0][row * k + i] * in[1][j * k + i];
              return sum;
            };
            Values y(static_cast<std::size_t>(rows * n));
            for (std::int64_t row = 0; row < rows; ++row) {
              for (std::int64_t i = 0; i < n; ++i) {
                const double gate = product(row, i);
                y[row * n + i] = gate / (1.0 + std::exp(-gate)) * product(row, n + i);
              }
            }
            return std::vector<Values>{y};
          },
      .seeded = {false},
  };
  if (with_bias) op_case.inputs.push_back({"bias", {DType::kF32, {2 * n}}, true});
  return op_case;
}

TEST(LinearSwiglu, Cases) {
  check(linear_swiglu_case(1, 8, 3, false));
  check(linear_swiglu_case(3, 16, 8, false));
  check(linear_swiglu_case(9, 48, 40, true));
  check(linear_swiglu_case(40, 72, 64, false));
  check(linear_swiglu_case(130, 24, 72, true));
}

struct GatedLayer {
  std::int64_t rows = 4;
  bool f32_output = false;
  bool read_again = false;
};

// The operations of a gated layer after the fusion pass.
std::vector<std::string> fused_ops(const GatedLayer& layer, FusionScope scope) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{layer.rows, Count::tokens}, 8}});
  const Tensor gate_up = linear(x, program.weight("w", {DType::kBf16, {16, 8}}), {}, {.f32_output = layer.f32_output});
  program.output("y", swiglu(gate_up));
  if (layer.read_again) program.output("gate_up", gate_up);
  program = fuse(program, scope);
  std::vector<std::string> ops;
  for (const Node& node : program.nodes()) ops.emplace_back(node.op->name());
  return ops;
}

TEST(LinearSwiglu, IsFusedWhereNothingElseReadsGateAndUp) {
  const std::vector<std::string> fused{"linear_swiglu"};
  const std::vector<std::string> parts{"linear", "swiglu"};
  EXPECT_EQ(fused_ops({}, FusionScope::kInference), fused);
  EXPECT_EQ(fused_ops({.rows = kMostLinearSwigluRows}, FusionScope::kInference), fused);
  EXPECT_EQ(fused_ops({.rows = kMostLinearSwigluRows + 1}, FusionScope::kInference), parts);
  EXPECT_EQ(fused_ops({.f32_output = true}, FusionScope::kInference), parts);
  EXPECT_EQ(fused_ops({.read_again = true}, FusionScope::kInference), parts);
  // A backward pass would read gate and up.
  EXPECT_EQ(fused_ops({}, FusionScope::kProgram), parts);
  EXPECT_EQ(fused_ops({}, FusionScope::kLayer), parts);
}

}  // namespace
}  // namespace hone::test
