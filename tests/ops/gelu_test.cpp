#include "ops/gelu/gelu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

OpCase gelu_case(std::int64_t rows, std::int64_t n, const std::string& approximate, double scale) {
  return {
      .name = text_of("gelu_", approximate, "_", rows, "x", n),
      .inputs = {{.name = "x", .type = {DType::kF32, {{rows, Count::tokens}, n}}, .scale = scale}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {gelu(in[0], {.approximate = approximate})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y = in[0];
            for (double& v : y) {
              v *= approximate == "none"
                       ? 0.5 * (1.0 + std::erf(v / std::sqrt(2.0)))
                       : 0.5 * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(Gelu, Cases) {
  for (const char* approximate : {"tanh", "none"}) {
    check(gelu_case(1, 3, approximate, 1.0));
    check(gelu_case(9, 40, approximate, 1.0));
    check(gelu_case(65, 133, approximate, 3.0));
  }
}

TEST(Gelu, LargeValuesSaturate) {
  for (const char* approximate : {"tanh", "none"}) {
    Program program;
    program.output("y", gelu(program.input("x", {DType::kF32, {1, 4}}), {.approximate = approximate}));
    TestRun run(std::move(program));
    run.set<float>("x", {-1000.0f, 1000.0f, 0.0f, -30.0f});
    run.executable().run();
    const std::vector<float> y = run.output<float>("y", 4);
    EXPECT_EQ(std::abs(y[0]), 0.0f);
    EXPECT_EQ(y[1], 1000.0f);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_NEAR(y[3], 0.0f, 1e-35f);
  }
}

TEST(Gelu, RefusesOtherForms) {
  Program program;
  EXPECT_THROW((void)gelu(program.input("x", {DType::kF32, {2, 5}}), {.approximate = "sigmoid"}), Error);
}

}  // namespace
}  // namespace hone::test
