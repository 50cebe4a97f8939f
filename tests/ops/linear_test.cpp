#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

OpCase linear_case(std::int64_t rows, std::int64_t k, std::int64_t n, bool with_bias, bool f32_output) {
  OpCase op_case{
      .name = "linear_" + std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n) +
              (with_bias ? "_bias" : "") + (f32_output ? "_f32" : ""),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, k}}}, {"weight", {DType::kF32, {n, k}}, true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {linear(in[0], in[1], with_bias ? in[2] : Tensor(), {.f32_output = f32_output})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y(static_cast<std::size_t>(rows * n));
            for (std::int64_t row = 0; row < rows; ++row) {
              for (std::int64_t j = 0; j < n; ++j) {
                double sum = with_bias ? in[2][j] : 0.0;
                for (std::int64_t i = 0; i < k; ++i) sum += in[0][row * k + i] * in[1][j * k + i];
                y[row * n + j] = sum;
              }
            }
            return std::vector<Values>{y};
          },
  };
  if (with_bias) op_case.inputs.push_back({"bias", {DType::kF32, {n}}, true});
  return op_case;
}

TEST(Linear, Cases) {
  check(linear_case(1, 8, 4, false, false));
  check(linear_case(7, 33, 19, true, false));
  check(linear_case(64, 48, 80, false, true));
  check(linear_case(130, 40, 24, true, true));
}

// Computes the rows of y = x W^T + b `count` at a time, in a program of capacity `count`.
template <class T>
std::vector<T> rows_in_groups(std::int64_t rows, std::int64_t count, std::int64_t k, std::int64_t n) {
  Program program;
  const DType dtype = DTypeOf<T>::value;
  const Tensor x = program.input("x", {dtype, {{count, Count::tokens}, k}});
  program.output("y", linear(x, program.weight("weight", {dtype, {n, k}}), program.weight("bias", {dtype, {n}})));
  TestRun run(std::move(program));
  run.set_weight("weight", normal_values<T>(static_cast<std::size_t>(n * k), 1));
  run.set_weight("bias", normal_values<T>(static_cast<std::size_t>(n), 2));
  const std::vector<T> xs = normal_values<T>(static_cast<std::size_t>(rows * k), 3);
  std::vector<T> ys;
  for (std::int64_t row = 0; row < rows; row += count) {
    const std::int64_t used = std::min(count, rows - row);
    run.set("x", std::vector<T>(xs.begin() + row * k, xs.begin() + (row + used) * k));
    run.executable().set_count(Count::tokens, used);
    run.executable().run();
    const std::vector<T> part = run.output<T>("y", static_cast<std::size_t>(used * n));
    ys.insert(ys.end(), part.begin(), part.end());
  }
  return ys;
}

template <class T>
void expect_rows_independent() {
  const std::vector<T> whole = rows_in_groups<T>(1000, 1000, 300, 96);
  for (const std::int64_t count : {1, 7, 64}) {
    EXPECT_TRUE(same_bits(rows_in_groups<T>(1000, count, 300, 96), whole)) << count << " rows at a time";
  }
}

TEST(Linear, RowsDoNotDependOnTheirNumber) {
  expect_rows_independent<float>();
  expect_rows_independent<BFloat16>();
  expect_rows_independent<double>();
}

// A gradient in bf16 is that of the sum in f32, rounded once. Operands are multiples of 1/16, so that no sum depends on
// its order.
TEST(Linear, GradientsInBf16AreRoundedOnce) {
  constexpr std::int64_t kRows = 64;
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{24, 40}, {13, 11}, {256, 320}}) {
    SCOPED_TRACE(text_of(n, " x ", k));
    Program program;
    const Tensor x = program.input("x", {DType::kBf16, {kRows, k}});
    const Tensor y = linear(x, program.weight("weight", {DType::kBf16, {n, k}}));
    const GradientSeed seed{y, program.input("dy", y.type())};
    append_gradients(program, {&seed, 1}, {}, GradientAccumulation::kAsWeights);
    TestRun run(std::move(program));
    const auto sixteenths = [](std::int64_t count, std::uint64_t of) {
      std::vector<BFloat16> values = normal_values<BFloat16>(static_cast<std::size_t>(count), of);
      for (BFloat16& value : values) {
        value = BFloat16(std::clamp(std::round(static_cast<float>(value) * 16), -63.0F, 63.0F) / 16);
      }
      return values;
    };
    const std::vector<BFloat16> xs = sixteenths(kRows * k, 1);
    const std::vector<BFloat16> dys = sixteenths(kRows * n, 2);
    std::vector<BFloat16> sums = normal_values<BFloat16>(static_cast<std::size_t>(n * k), 3);
    for (BFloat16& sum : sums) sum = BFloat16(static_cast<float>(sum) * 64);
    run.set("x", xs);
    run.set("dy", dys);
    run.gradients().upload("weight", std::as_bytes(std::span(sums)));
    run.executable().run();
    for (std::int64_t i = 0; i < n * k; ++i) {
      float sum = static_cast<float>(sums[static_cast<std::size_t>(i)]);
      for (std::int64_t row = 0; row < kRows; ++row) {
        sum += static_cast<float>(dys[static_cast<std::size_t>(row * n + i / k)]) *
               static_cast<float>(xs[static_cast<std::size_t>(row * k + i % k)]);
      }
      sums[static_cast<std::size_t>(i)] = BFloat16(sum);
    }
    std::vector<BFloat16> seen(sums.size());
    run.gradients().download("weight", 0, std::as_writable_bytes(std::span(seen)));
    std::int64_t different = 0;
    for (std::size_t i = 0; i < sums.size(); ++i)
      different += static_cast<float>(sums[i]) != static_cast<float>(seen[i]);
    EXPECT_EQ(different, 0);
  }
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  EXPECT_THROW((void)linear(x, program.weight("w", {DType::kF32, {3, 9}})), Error);
  EXPECT_THROW((void)linear(x, program.weight("b", {DType::kBf16, {3, 8}})), Error);
  const Tensor weight = program.weight("v", {DType::kF32, {3, 8}});
  EXPECT_THROW((void)linear(x, weight, program.weight("bias", {DType::kF32, {4}})), Error);
}

}  // namespace
}  // namespace hone::test
