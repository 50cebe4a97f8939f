#include "ops/weighted_sum/weighted_sum.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/fill/fill.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "passes/gradient.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

OpCase weighted_sum_case(std::int64_t rows) {
  return {
      .name = "weighted_sum_" + std::to_string(rows),
      .inputs = {{.name = "values", .type = {DType::kF32, {{rows, Count::tokens}}}, .keeps_dtype = true},
                 {.name = "weights",
                  .type = {DType::kF32, {{rows, Count::tokens}}},
                  .differentiable = false,
                  .keeps_dtype = true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {weighted_sum(in[0], in[1])}; },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            const std::int64_t used = rows_in_use(counts, Count::tokens, rows);
            double sum = 0;
            for (std::int64_t i = 0; i < used; ++i) sum += in[0][i] * in[1][i];
            return std::vector<Values>{{sum}};
          },
  };
}

TEST(WeightedSum, Cases) {
  check(weighted_sum_case(1));
  check(weighted_sum_case(77));
  check(weighted_sum_case(4096));
}

// Value and gradient of a loss of three rows, of which the middle one is NaN and has weight 0.
TEST(WeightedSum, LeavesOutWhatWeighsNothing) {
  register_operations();
  Program program;
  const Type type{DType::kF32, {3}};
  const Tensor values = program.input("values", type);
  const Tensor loss = weighted_sum(scale(values, -2.0), program.input("weights", type));
  const Tensor wanted[] = {values};
  const GradientSeed seeds[] = {{loss, fill(program, loss.type(), 1.0)}};
  program.output("loss", loss);
  program.output("gradient", append_gradients(program, seeds, wanted)[0]);
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  executable.set<float>("values", std::vector<float>{1.5f, nan, -3.0f});
  executable.set<float>("weights", std::vector<float>{0.5f, 0.0f, 2.0f});
  executable.run();
  std::vector<float> sum(1);
  std::vector<float> gradient(3);
  executable.get<float>("loss", sum);
  executable.get<float>("gradient", gradient);
  EXPECT_EQ(sum[0], 10.5f);
  EXPECT_EQ(gradient, (std::vector<float>{-1.0f, 0.0f, -4.0f}));
}

// In float, 1e8 + 1 - 1e8 is 0.
TEST(WeightedSum, AddsInDouble) {
  register_operations();
  Program program;
  const Type type{DType::kF32, {48}};
  program.output("sum", weighted_sum(program.input("values", type), program.input("weights", type)));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  std::vector<float> values(48, 0.0f);
  values[0] = 1e8f;
  values[16] = 1.0f;
  values[32] = -1e8f;
  executable.set<float>("values", values);
  executable.set<float>("weights", std::vector<float>(48, 1.0f));
  executable.run();
  std::vector<float> sum(1);
  executable.get<float>("sum", sum);
  EXPECT_EQ(sum[0], 1.0f);
}

}  // namespace
}  // namespace hone::test
