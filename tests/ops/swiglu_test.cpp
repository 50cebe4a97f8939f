#include "ops/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

OpCase swiglu_case(std::int64_t rows, std::int64_t n, double scale) {
  return {
      .name = "swiglu_" + std::to_string(rows) + "x" + std::to_string(n),
      .inputs = {{.name = "gate_up", .type = {DType::kF32, {{rows, Count::tokens}, 2 * n}}, .scale = scale}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {swiglu(in[0])}; },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y(static_cast<std::size_t>(rows * n));
            for (std::int64_t row = 0; row < rows; ++row) {
              for (std::int64_t i = 0; i < n; ++i) {
                const double gate = in[0][row * 2 * n + i];
                y[row * n + i] = gate / (1.0 + std::exp(-gate)) * in[0][row * 2 * n + n + i];
              }
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(Swiglu, Cases) {
  check(swiglu_case(1, 3, 1.0));
  check(swiglu_case(9, 40, 1.0));
  check(swiglu_case(65, 17, 8.0));
}

TEST(Swiglu, LargeGatesSaturate) {
  Program program;
  program.output("y", swiglu(program.input("gate_up", {DType::kF32, {1, 8}})));
  TestRun run(std::move(program));
  run.set<float>("gate_up", {-1000.0f, 1000.0f, 0.0f, -89.0f, 2.0f, 2.0f, 2.0f, 2.0f});
  run.executable().run();
  const std::vector<float> y = run.output<float>("y", 4);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 2000.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_NEAR(y[3], 0.0f, 1e-35f);
}

TEST(Swiglu, RefusesAnOddRow) {
  Program program;
  EXPECT_THROW((void)swiglu(program.input("gate_up", {DType::kF32, {2, 5}})), Error);
}

}  // namespace
}  // namespace hone::test
