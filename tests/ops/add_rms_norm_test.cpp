#include "ops/add_rms_norm/add_rms_norm.h"

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

OpCase add_rms_norm_case(std::int64_t rows, std::int64_t n, const std::vector<bool>& seeded) {
  const double epsilon = 1e-5;
  OpCase op_case{
      .name = text_of("add_rms_norm_", rows, "x", n, seeded[0] ? "_sum" : "", seeded[1] ? "_normalised" : ""),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"residual", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"weight", {DType::kF32, {n}}, true, {}, 1.0, seeded[1]}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const auto [sum, normalised] = add_rms_norm(in[0], in[1], in[2], {.epsilon = epsilon});
        return {sum, normalised};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values sum(in[0].size());
            Values y(in[0].size());
            for (std::int64_t row = 0; row < rows; ++row) {
              double squares = 0;
              for (std::int64_t i = row * n; i < (row + 1) * n; ++i) {
                sum[i] = in[0][i] + in[1][i];
                squares += sum[i] * sum[i];
              }
              const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
              for (std::int64_t i = 0; i < n; ++i) y[row * n + i] = sum[row * n + i] * rstd * in[2][i];
            }
            return std::vector<Values>{sum, y};
          },
  };
  op_case.seeded = seeded;
  return op_case;
}

TEST(AddRmsNorm, Cases) {
  check(add_rms_norm_case(1, 16, {true, true}));
  check(add_rms_norm_case(9, 33, {true, true}));
  check(add_rms_norm_case(9, 33, {false, true}));
  check(add_rms_norm_case(9, 33, {true, false}));
  check(add_rms_norm_case(130, 96, {true, true}));
}

constexpr std::int64_t kRmsRows = 40, kRmsSize = 100;

template <class T>
struct RmsResult {
  std::vector<T> sum, normalised, gradient;
  std::vector<std::byte> weight_gradient;
};

template <class T>
RmsResult<T> run_rms(bool fused) {
  Program program;
  const Type type{DTypeOf<T>::value, {{kRmsRows, Count::tokens}, kRmsSize}};
  const Tensor x = program.input("x", type);
  const Tensor residual = program.input("residual", type);
  const Tensor weight = program.weight("weight", {DTypeOf<T>::value, {kRmsSize}});
  Tensor sum, normalised;
  if (fused) {
    std::tie(sum, normalised) = add_rms_norm(x, residual, weight, {.epsilon = 1e-6});
  } else {
    sum = x + residual;
    normalised = rms_norm(sum, weight, {.epsilon = 1e-6});
  }
  program.output("sum", sum);
  program.output("normalised", normalised);
  const GradientSeed seeds[] = {{sum, program.input("dsum", type)}, {normalised, program.input("dnormalised", type)}};
  program.output("gradient", append_gradients(program, seeds, std::span(&x, 1))[0]);
  TestRun run(std::move(program));
  constexpr std::size_t kElements = kRmsRows * kRmsSize;
  std::uint64_t seed = 1;
  for (const char* name : {"x", "residual", "dsum", "dnormalised"}) run.set(name, normal_values<T>(kElements, seed++));
  run.set_weight("weight", normal_values<T>(kRmsSize, seed));
  run.executable().set_count(Count::tokens, kRmsRows - 3);
  run.executable().run();
  constexpr std::size_t kUsed = (kRmsRows - 3) * kRmsSize;
  return {run.output<T>("sum", kUsed), run.output<T>("normalised", kUsed), run.output<T>("gradient", kUsed),
          run.gradient("weight")};
}

template <class T>
void expect_bits_of_rms_parts() {
  const RmsResult<T> fused = run_rms<T>(true);
  const RmsResult<T> parts = run_rms<T>(false);
  EXPECT_TRUE(same_bits(fused.sum, parts.sum));
  EXPECT_TRUE(same_bits(fused.normalised, parts.normalised));
  EXPECT_TRUE(same_bits(fused.gradient, parts.gradient));
  EXPECT_TRUE(same_bits(fused.weight_gradient, parts.weight_gradient));
}

TEST(AddRmsNorm, BitsOfAddThenRmsNorm) {
  expect_bits_of_rms_parts<float>();
  expect_bits_of_rms_parts<BFloat16>();
  expect_bits_of_rms_parts<double>();
}

TEST(AddRmsNorm, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor y = program.input("y", {DType::kF32, {4, 9}});
  EXPECT_THROW((void)add_rms_norm(x, y, program.weight("w", {DType::kF32, {8}}), {}), Error);
  EXPECT_THROW((void)add_rms_norm(x, x, program.weight("v", {DType::kF32, {9}}), {}), Error);
}

}  // namespace
}  // namespace hone::test
