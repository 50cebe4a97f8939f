#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_case.h"
#include "ops/rms_norm/rms_norm.h"

namespace hone::test {
namespace {

OpCase rms_norm_case(std::int64_t rows, std::int64_t n, double epsilon) {
  return {
      .name = "rms_norm_" + std::to_string(rows) + "x" + std::to_string(n),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}}, {"weight", {DType::kF32, {n}}, true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {rms_norm(in[0], in[1], {.epsilon = epsilon})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y(in[0].size());
            for (std::int64_t row = 0; row < rows; ++row) {
              double squares = 0;
              for (std::int64_t i = 0; i < n; ++i) squares += in[0][row * n + i] * in[0][row * n + i];
              const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
              for (std::int64_t i = 0; i < n; ++i) y[row * n + i] = in[0][row * n + i] * rstd * in[1][i];
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(RmsNorm, Cases) {
  check(rms_norm_case(1, 16, 1e-6));
  check(rms_norm_case(7, 48, 1e-5));
  check(rms_norm_case(64, 33, 1e-6));
  check(rms_norm_case(300, 128, 1e-6));
}

}  // namespace
}  // namespace hone::test
