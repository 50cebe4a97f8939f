#include "ops/gradient_norm/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel.h"
#include "core/random.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

TEST(GradientNorm, Cases) {
  check({
      .name = "gradient_norm",
      .inputs = {{.name = "a", .type = {DType::kF32, {3, 5}}},
                 {.name = "b", .type = {DType::kF32, {70001}}, .scale = 0.01},
                 {.name = "c", .type = {DType::kF32, {1}}}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {gradient_norm(in)}; },
      .reference =
          [](std::span<const Values> in, const Counts&) {
            double sum = 0;
            for (const Values& values : in) {
              for (const double value : values) sum += value * value;
            }
            return std::vector<Values>{{std::sqrt(sum)}};
          },
      .seeded = {false},
  });
}

float norm_of(const std::vector<float>& values) {
  Program program;
  const Tensor gradient = program.input("g", {DType::kF32, {static_cast<std::int64_t>(values.size())}});
  program.output("norm", gradient_norm({&gradient, 1}));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  executable.set<float>("g", values);
  executable.run();
  std::vector<float> norm(1);
  executable.get<float>("norm", norm);
  return norm[0];
}

TEST(GradientNorm, ThreadsDoNotMatter) {
  register_operations();
  const RandomStream random(1, "gradient");
  std::vector<float> values(1 << 18);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::exp(5.0f * random.normal(i));
  const int threads = thread_count();
  set_thread_count(1);
  const float one = norm_of(values);
  set_thread_count(3);
  const float three = norm_of(values);
  set_thread_count(threads);
  EXPECT_EQ(one, three);
}

// Squares that overflow or underflow in float are summed in double.
TEST(GradientNorm, HasTheRangeOfItsResult) {
  register_operations();
  EXPECT_FLOAT_EQ(norm_of({3e30f, 4e30f}), 5e30f);
  EXPECT_FLOAT_EQ(norm_of({3e-30f, 4e-30f}), 5e-30f);
  EXPECT_TRUE(std::isinf(norm_of({1.0f, INFINITY})));
  EXPECT_TRUE(std::isnan(norm_of({1.0f, NAN})));
}

}  // namespace
}  // namespace hone::test
