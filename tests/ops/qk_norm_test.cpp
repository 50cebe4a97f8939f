#include "ops/qk_norm/qk_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"

namespace hone::test {
namespace {

OpCase qk_norm_case(std::int64_t rows, const QkNormAttributes& a) {
  const std::int64_t n = (a.heads + 2 * a.kv_heads) * a.head_dim;
  return {
      .name = text_of("qk_norm_", rows, "x", a.heads, "/", a.kv_heads, "x", a.head_dim),
      .inputs = {{"qkv", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"q_weight", {DType::kF32, {a.head_dim}}, true},
                 {"k_weight", {DType::kF32, {a.head_dim}}, true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {qk_norm(in[0], in[1], in[2], a)};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y = in[0];
            for (std::int64_t row = 0; row < rows; ++row) {
              for (std::int64_t head = 0; head < a.heads + a.kv_heads; ++head) {
                const Values& weight = head < a.heads ? in[1] : in[2];
                const std::int64_t at = row * n + head * a.head_dim;
                double squares = 0;
                for (std::int64_t i = 0; i < a.head_dim; ++i) squares += in[0][at + i] * in[0][at + i];
                const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(a.head_dim) + a.epsilon);
                for (std::int64_t i = 0; i < a.head_dim; ++i) y[at + i] = in[0][at + i] * rstd * weight[i];
              }
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(QkNorm, Cases) {
  check(qk_norm_case(1, {.heads = 1, .kv_heads = 1, .head_dim = 8}));
  check(qk_norm_case(7, {.heads = 4, .kv_heads = 2, .head_dim = 24, .epsilon = 1e-5}));
  check(qk_norm_case(65, {.heads = 3, .kv_heads = 1, .head_dim = 64}));
}

TEST(QkNorm, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor qkv = program.input("qkv", {DType::kF32, {4, 32}});
  const Tensor weight = program.weight("weight", {DType::kF32, {8}});
  EXPECT_THROW((void)qk_norm(qkv, weight, weight, {.heads = 3, .kv_heads = 1, .head_dim = 8}), Error);
  const Tensor other = program.weight("other", {DType::kF32, {4}});
  EXPECT_THROW((void)qk_norm(qkv, weight, other, {.heads = 2, .kv_heads = 1, .head_dim = 8}), Error);
}

}  // namespace
}  // namespace hone::test
