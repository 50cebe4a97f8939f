#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "ops/head_columns/head_columns.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

// Reference: attention by its definition over the rows of each sequence.
Values attend(const Values& qkv, const Values& cu_seqlens, std::int64_t rows, const AttentionAttributes& a) {
  const std::int64_t n = (a.heads + 2 * a.kv_heads) * a.head_dim;
  Values o(static_cast<std::size_t>(rows * a.heads * a.head_dim));
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const auto begin = static_cast<std::int64_t>(cu_seqlens[s]);
    for (std::int64_t row = begin; row < static_cast<std::int64_t>(cu_seqlens[s + 1]); ++row) {
      for (std::int64_t head = 0; head < a.heads; ++head) {
        const std::int64_t kv_head = head / (a.heads / a.kv_heads);
        const double* q = qkv.data() + row * n + head * a.head_dim;
        double sum = 0;
        double* out = o.data() + (row * a.heads + head) * a.head_dim;
        for (std::int64_t other = begin; other <= row; ++other) {
          const double* k = qkv.data() + other * n + (a.heads + kv_head) * a.head_dim;
          const double* v = k + a.kv_heads * a.head_dim;
          double score = 0;
          for (std::int64_t d = 0; d < a.head_dim; ++d) score += q[d] * k[d];
          const double weight = std::exp(score * a.scale);
          sum += weight;
          for (std::int64_t d = 0; d < a.head_dim; ++d) out[d] += weight * v[d];
        }
        for (std::int64_t d = 0; d < a.head_dim; ++d) out[d] /= sum;
      }
    }
  }
  return o;
}

// Case with sequences of these lengths, two absent sequences and `spare` rows outside all sequences.
OpCase attention_case(const std::vector<std::int64_t>& lengths, std::int64_t spare, const AttentionAttributes& a) {
  Values cu_seqlens{0.0};
  for (const std::int64_t length : lengths) cu_seqlens.push_back(cu_seqlens.back() + static_cast<double>(length));
  const auto used = static_cast<std::int64_t>(cu_seqlens.back());
  const std::int64_t rows = used + spare;
  for (int absent = 0; absent < 2; ++absent) cu_seqlens.push_back(cu_seqlens.back());
  OpCase op_case{
      .name = text_of("attention_", lengths.size(), "_sequences_", rows, "_rows_", a.heads, "/", a.kv_heads, "x",
                      a.head_dim),
      .inputs = {{"qkv", {DType::kF32, {{rows, Count::tokens}, (a.heads + 2 * a.kv_heads) * a.head_dim}}},
                 {"cu_seqlens", {DType::kI32, {static_cast<std::int64_t>(cu_seqlens.size())}}}},
      .below = {{Count::tokens, used}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {attention(in[0], in[1], a)};
      },
      .reference = [=](std::span<const Values> in,
                       const Counts&) { return std::vector<Values>{attend(in[0], in[1], rows, a)}; },
  };
  op_case.inputs[1].values = cu_seqlens;
  return op_case;
}

struct AttentionCaseShape {
  std::vector<std::int64_t> lengths;
  std::int64_t spare;
  AttentionAttributes attributes;
};

// One test for each shape, because memory checkers take minutes for a shape.
class AttentionShapes : public ::testing::TestWithParam<AttentionCaseShape> {};

TEST_P(AttentionShapes, IsAsDefined) {
  check(attention_case(GetParam().lengths, GetParam().spare, GetParam().attributes));
}

INSTANTIATE_TEST_SUITE_P(
    Attention, AttentionShapes,
    ::testing::Values(AttentionCaseShape{{1}, 0, {.heads = 1, .kv_heads = 1, .head_dim = 8}},
                      AttentionCaseShape{{5, 3}, 4, {.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.35}},
                      AttentionCaseShape{{2, 0, 70, 1}, 9, {.heads = 3, .kv_heads = 1, .head_dim = 16, .scale = 0.25}},
                      AttentionCaseShape{{130}, 0, {.heads = 2, .kv_heads = 2, .head_dim = 24, .scale = 0.2}},
                      AttentionCaseShape{
                          {70, 1, 64, 9}, 3, {.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125}},
                      AttentionCaseShape{{33, 50}, 0, {.heads = 3, .kv_heads = 3, .head_dim = 80, .scale = 0.11}},
                      AttentionCaseShape{{150}, 2, {.heads = 4, .kv_heads = 1, .head_dim = 128, .scale = 0.088}},
                      AttentionCaseShape{{40, 37}, 0, {.heads = 2, .kv_heads = 1, .head_dim = 256, .scale = 0.0625}}),
    [](const auto& shape) {
      return text_of("heads", shape.param.attributes.heads, "of", shape.param.attributes.head_dim, "rows",
                     shape.param.lengths[0]);
    });

// Reference of attention to heads whose values are shorter than their keys: in[0] are queries and in[1] keys with
// values, as latent_heads has them.
Values attend_latent(std::span<const Values> in, std::int64_t rows, const LatentHeadsAttributes& h, double scale) {
  const AttentionAttributes a{.heads = h.heads, .kv_heads = h.heads, .head_dim = h.head_dim(), .scale = scale};
  const std::int64_t width = h.query_width();
  Values qkv(static_cast<std::size_t>(3 * rows * width));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(in[0].begin() + row * width, width, qkv.begin() + 3 * row * width);
    for (std::int64_t head = 0; head < h.heads; ++head) {
      const auto kv = in[1].begin() + row * h.kv_width() + head * (h.nope_dim + h.value_dim);
      const auto k = qkv.begin() + (3 * row + 1) * width + head * h.head_dim();
      std::copy_n(kv, h.nope_dim, k);
      std::copy_n(in[2].begin() + row * h.rope_dim, h.rope_dim, k + h.nope_dim);
      std::copy_n(kv + h.nope_dim, h.value_dim, k + width);
    }
  }
  const Values o = attend(qkv, in[3], rows, a);
  Values kept;
  for (std::int64_t head = 0; head < rows * h.heads; ++head) {
    kept.insert(kept.end(), o.begin() + head * a.head_dim, o.begin() + head * a.head_dim + h.value_dim);
  }
  return kept;
}

// Heads of 192 with values of 128 have a dedicated kernel on Hopper; its tiles are 64 rows and 128 keys.
TEST(Attention, ValuesShorterThanKeys) {
  for (const LatentHeadsAttributes& h : {LatentHeadsAttributes{2, 16, 8, 16}, LatentHeadsAttributes{2, 128, 64, 128}}) {
    constexpr double kScale = 0.07;
    OpCase op_case = attention_case({70, 1, 130, 9}, 3, {.heads = 1, .kv_heads = 1, .head_dim = 8});
    const CaseInput cu_seqlens = op_case.inputs[1];
    const std::int64_t rows = op_case.inputs[0].type.shape[0].size;
    const Dim tokens{rows, Count::tokens};
    op_case.name = text_of("attention_latent_", h.head_dim(), "/", h.value_dim);
    op_case.inputs = {{"query", {DType::kF32, {tokens, h.query_width()}}},
                      {"kv", {DType::kF32, {tokens, h.kv_width()}}},
                      {"rope_key", {DType::kF32, {tokens, h.rope_dim}}},
                      cu_seqlens};
    op_case.build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
      const Tensor o = attention(
          latent_heads(in[0], in[1], in[2], h), in[3],
          {.heads = h.heads, .kv_heads = h.heads, .head_dim = h.head_dim(), .scale = kScale, .value_dim = h.value_dim});
      return {head_columns(o, {.heads = h.heads, .head_dim = h.head_dim(), .columns = h.value_dim})};
    };
    op_case.reference = [=](std::span<const Values> in, const Counts&) {
      return std::vector<Values>{attend_latent(in, rows, h, kScale)};
    };
    check(op_case);
  }
}

template <class T>
struct AttentionResult {
  std::vector<T> o;
  std::vector<T> gradient;
};

template <class T>
AttentionResult<T> run(const AttentionAttributes& a, const std::vector<T>& qkv, const std::vector<T>& grad_o,
                       const std::vector<std::int32_t>& cu_seqlens) {
  const std::int64_t width = (a.heads + 2 * a.kv_heads) * a.head_dim;
  Program program;
  const Tensor x = program.input("qkv", {DTypeOf<T>::value, {static_cast<std::int64_t>(qkv.size()) / width, width}});
  const Tensor o =
      attention(x, program.input("cu_seqlens", {DType::kI32, {static_cast<std::int64_t>(cu_seqlens.size())}}), a);
  program.output("o", o);
  const GradientSeed seed{o, program.input("grad_o", o.type())};
  program.output("gradient", append_gradients(program, std::span(&seed, 1), std::span(&x, 1))[0]);
  TestRun run(std::move(program));
  run.set("qkv", qkv);
  run.set("grad_o", grad_o);
  run.set("cu_seqlens", cu_seqlens);
  run.executable().run();
  return {run.output<T>("o", grad_o.size()), run.output<T>("gradient", qkv.size())};
}

// Checks that a sequence between two others has the same bits as alone.
template <class T>
void check_neighbours(const AttentionAttributes& a, std::int32_t before, std::int32_t length, std::int32_t after) {
  const std::int64_t width = (a.heads + 2 * a.kv_heads) * a.head_dim;
  const std::int64_t out = a.heads * a.head_dim;
  const std::int32_t all = before + length + after;
  auto qkv = normal_values<T>(static_cast<std::size_t>(all * width), 1);
  for (std::int64_t i = 0; i < all * width; ++i) {
    const std::int64_t value = i % width - (a.heads + a.kv_heads) * a.head_dim;
    if (value >= 0 && value % a.head_dim >= a.values()) qkv[static_cast<std::size_t>(i)] = T(0.0F);
  }
  const auto grad_o = normal_values<T>(static_cast<std::size_t>(all * out), 2);
  const AttentionResult<T> packed = run<T>(a, qkv, grad_o, {0, before, before + length, all});
  const auto part = [&](const std::vector<T>& values, std::int64_t columns) {
    return std::vector<T>(values.begin() + before * columns, values.begin() + (before + length) * columns);
  };
  const AttentionResult<T> alone = run<T>(a, part(qkv, width), part(grad_o, out), {0, length});
  EXPECT_TRUE(same_bits(alone.o, part(packed.o, out)));
  EXPECT_TRUE(same_bits(alone.gradient, part(packed.gradient, width)));
}

TEST(Attention, SequenceDoesNotDependOnItsNeighbours) {
  check_neighbours<float>({.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25}, 37, 90, 13);
  // The sequence is shorter or longer than its neighbours, which changes the order of a kernel's blocks.
  constexpr AttentionAttributes kWide{.heads = 2, .kv_heads = 1, .head_dim = 128, .scale = 0.088};
  check_neighbours<BFloat16>(kWide, 300, 500, 13);
  check_neighbours<BFloat16>(kWide, 1300, 500, 200);
  constexpr AttentionAttributes kLatent{.heads = 2, .kv_heads = 1, .head_dim = 192, .scale = 0.07, .value_dim = 128};
  check_neighbours<BFloat16>(kLatent, 300, 500, 13);
  check_neighbours<BFloat16>(kLatent, 1300, 500, 200);
}

constexpr AttentionAttributes kGrouped{.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25};
constexpr std::int64_t kQkvWidth = (4 + 2 * 2) * 16;

TEST(Attention, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor cu_seqlens = program.input("cu_seqlens", {DType::kI32, {3}});
  const Tensor qkv = program.input("qkv", {DType::kF32, {4, kQkvWidth}});
  EXPECT_THROW((void)attention(qkv, cu_seqlens, {.heads = 4, .kv_heads = 3, .head_dim = 16}), Error);
  EXPECT_THROW((void)attention(qkv, cu_seqlens, {.heads = 5, .kv_heads = 2, .head_dim = 16}), Error);
  EXPECT_THROW((void)attention(qkv, qkv, kGrouped), Error);
  EXPECT_THROW((void)attention(qkv, cu_seqlens, {.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 17}), Error);
}

}  // namespace
}  // namespace hone::test
