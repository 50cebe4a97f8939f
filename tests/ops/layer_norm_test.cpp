#include "ops/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"

namespace hone::test {
namespace {

OpCase layer_norm_case(std::int64_t rows, std::int64_t n, double epsilon) {
  return {
      .name = "layer_norm_" + std::to_string(rows) + "x" + std::to_string(n),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"weight", {DType::kF32, {n}}, true},
                 {"bias", {DType::kF32, {n}}, true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {layer_norm(in[0], in[1], in[2], {.epsilon = epsilon})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y(in[0].size());
            for (std::int64_t row = 0; row < rows; ++row) {
              const double* x = in[0].data() + row * n;
              double mean = 0, squares = 0;
              for (std::int64_t i = 0; i < n; ++i) mean += x[i] / static_cast<double>(n);
              for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
              const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
              for (std::int64_t i = 0; i < n; ++i) y[row * n + i] = (x[i] - mean) * rstd * in[1][i] + in[2][i];
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(LayerNorm, Cases) {
  check(layer_norm_case(1, 16, 1e-5));
  check(layer_norm_case(7, 48, 1e-5));
  check(layer_norm_case(64, 33, 1e-6));
  check(layer_norm_case(300, 128, 1e-5));
  check(layer_norm_case(3, 1160, 1e-5));
}

TEST(LayerNorm, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor weight = program.weight("weight", {DType::kF32, {8}});
  EXPECT_THROW((void)layer_norm(x, weight, program.weight("bias", {DType::kF32, {9}}), {}), Error);
  EXPECT_THROW((void)layer_norm(x, weight, {}, {}), Error);
}

}  // namespace
}  // namespace hone::test
