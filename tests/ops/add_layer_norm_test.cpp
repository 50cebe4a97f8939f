#include "ops/add_layer_norm/add_layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

OpCase add_layer_norm_case(std::int64_t rows, std::int64_t n, const std::vector<bool>& seeded) {
  const double epsilon = 1e-5;
  OpCase op_case{
      .name = text_of("add_layer_norm_", rows, "x", n, seeded[0] ? "_sum" : "", seeded[1] ? "_normalised" : ""),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"residual", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"weight", {DType::kF32, {n}}, true, {}, 1.0, seeded[1]},
                 {"bias", {DType::kF32, {n}}, true, {}, 1.0, seeded[1]}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const auto [sum, normalised] = add_layer_norm(in[0], in[1], in[2], in[3], {.epsilon = epsilon});
        return {sum, normalised};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values sum(in[0].size());
            Values y(in[0].size());
            for (std::int64_t row = 0; row < rows; ++row) {
              double mean = 0, squares = 0;
              for (std::int64_t i = row * n; i < (row + 1) * n; ++i) {
                sum[i] = in[0][i] + in[1][i];
                mean += sum[i] / static_cast<double>(n);
              }
              for (std::int64_t i = row * n; i < (row + 1) * n; ++i) squares += (sum[i] - mean) * (sum[i] - mean);
              const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
              for (std::int64_t i = 0; i < n; ++i) {
                y[row * n + i] = (sum[row * n + i] - mean) * rstd * in[2][i] + in[3][i];
              }
            }
            return std::vector<Values>{sum, y};
          },
  };
  op_case.seeded = seeded;
  return op_case;
}

TEST(AddLayerNorm, Cases) {
  check(add_layer_norm_case(1, 16, {true, true}));
  check(add_layer_norm_case(9, 33, {true, true}));
  check(add_layer_norm_case(9, 33, {false, true}));
  check(add_layer_norm_case(9, 33, {true, false}));
  check(add_layer_norm_case(130, 96, {true, true}));
}

constexpr std::int64_t kLayerRows = 40, kLayerSize = 100;

template <class T>
struct LayerResult {
  std::vector<T> sum, normalised, gradient;
  std::vector<std::byte> weight_gradient, bias_gradient;
};

template <class T>
LayerResult<T> run_layer(bool fused) {
  Program program;
  const Type type{DTypeOf<T>::value, {{kLayerRows, Count::tokens}, kLayerSize}};
  const Tensor x = program.input("x", type);
  const Tensor residual = program.input("residual", type);
  const Tensor weight = program.weight("weight", {DTypeOf<T>::value, {kLayerSize}});
  const Tensor bias = program.weight("bias", {DTypeOf<T>::value, {kLayerSize}});
  Tensor sum, normalised;
  if (fused) {
    std::tie(sum, normalised) = add_layer_norm(x, residual, weight, bias, {.epsilon = 1e-6});
  } else {
    sum = x + residual;
    normalised = layer_norm(sum, weight, bias, {.epsilon = 1e-6});
  }
  program.output("sum", sum);
  program.output("normalised", normalised);
  const GradientSeed seeds[] = {{sum, program.input("dsum", type)}, {normalised, program.input("dnormalised", type)}};
  program.output("gradient", append_gradients(program, seeds, std::span(&x, 1))[0]);
  TestRun run(std::move(program));
  constexpr std::size_t kElements = kLayerRows * kLayerSize;
  std::uint64_t seed = 1;
  for (const char* name : {"x", "residual", "dsum", "dnormalised"}) run.set(name, normal_values<T>(kElements, seed++));
  run.set_weight("weight", normal_values<T>(kLayerSize, seed++));
  run.set_weight("bias", normal_values<T>(kLayerSize, seed));
  run.executable().set_count(Count::tokens, kLayerRows - 3);
  run.executable().run();
  constexpr std::size_t kUsed = (kLayerRows - 3) * kLayerSize;
  return {run.output<T>("sum", kUsed), run.output<T>("normalised", kUsed), run.output<T>("gradient", kUsed),
          run.gradient("weight"), run.gradient("bias")};
}

template <class T>
void expect_bits_of_layer_parts() {
  const LayerResult<T> fused = run_layer<T>(true);
  const LayerResult<T> parts = run_layer<T>(false);
  EXPECT_TRUE(same_bits(fused.sum, parts.sum));
  EXPECT_TRUE(same_bits(fused.normalised, parts.normalised));
  EXPECT_TRUE(same_bits(fused.gradient, parts.gradient));
  EXPECT_TRUE(same_bits(fused.weight_gradient, parts.weight_gradient));
  EXPECT_TRUE(same_bits(fused.bias_gradient, parts.bias_gradient));
}

TEST(AddLayerNorm, BitsOfAddThenLayerNorm) {
  expect_bits_of_layer_parts<float>();
  expect_bits_of_layer_parts<BFloat16>();
  expect_bits_of_layer_parts<double>();
}

TEST(AddLayerNorm, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor y = program.input("y", {DType::kF32, {4, 9}});
  const Tensor weight = program.weight("w", {DType::kF32, {8}});
  EXPECT_THROW((void)add_layer_norm(x, y, weight, weight, {}), Error);
  EXPECT_THROW((void)add_layer_norm(x, x, weight, program.weight("v", {DType::kF32, {9}}), {}), Error);
}

}  // namespace
}  // namespace hone::test
