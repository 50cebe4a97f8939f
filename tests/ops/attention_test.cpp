#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

// By the definition, over the rows of each sequence.
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

// `used` rows lie in sequences of these lengths; then absent sequences, and `spare` rows outside all of them.
OpCase attention_case(const std::vector<std::int64_t>& lengths, std::int64_t spare, const AttentionAttributes& a) {
  Values cu_seqlens{0.0};
  for (const std::int64_t length : lengths) cu_seqlens.push_back(cu_seqlens.back() + static_cast<double>(length));
  const auto used = static_cast<std::int64_t>(cu_seqlens.back());
  const std::int64_t rows = used + spare;
  for (int absent = 0; absent < 2; ++absent) cu_seqlens.push_back(cu_seqlens.back());
  OpCase op_case{
      .name = text_of("attention_", lengths.size(), "_sequences_", rows, "_rows_", a.heads, "/", a.kv_heads, "x",
                      a.head_dim),
      .inputs = {{"qkv", {DType::f32, {{rows, Count::tokens}, (a.heads + 2 * a.kv_heads) * a.head_dim}}},
                 {"cu_seqlens", {DType::i32, {static_cast<std::int64_t>(cu_seqlens.size())}}}},
      .below = {0, used},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {attention(in[0], in[1], a)};
      },
      .reference = [=](std::span<const Values> in,
                       const Counts&) { return std::vector<Values>{attend(in[0], in[1], rows, a)}; },
  };
  op_case.inputs[1].values = cu_seqlens;
  return op_case;
}

TEST(Attention, Cases) {
  check(attention_case({1}, 0, {.heads = 1, .kv_heads = 1, .head_dim = 8}));
  check(attention_case({5, 3}, 4, {.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.35}));
  check(attention_case({2, 0, 70, 1}, 9, {.heads = 3, .kv_heads = 1, .head_dim = 16, .scale = 0.25}));
  check(attention_case({130}, 0, {.heads = 2, .kv_heads = 2, .head_dim = 24, .scale = 0.2}));
  check(attention_case({70, 1, 64, 9}, 3, {.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125}));
  check(attention_case({33, 50}, 0, {.heads = 3, .kv_heads = 3, .head_dim = 80, .scale = 0.11}));
  check(attention_case({150}, 2, {.heads = 4, .kv_heads = 1, .head_dim = 128, .scale = 0.088}));
  check(attention_case({40, 37}, 0, {.heads = 2, .kv_heads = 1, .head_dim = 256, .scale = 0.0625}));
}

constexpr AttentionAttributes kGrouped{.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25};
constexpr std::int64_t kWidth = (4 + 2 * 2) * 16;

struct AttentionResult {
  std::vector<float> o;
  std::vector<float> gradient;
};

AttentionResult run(const std::vector<float>& qkv, const std::vector<float>& grad_o,
                    const std::vector<std::int32_t>& cu_seqlens) {
  const auto rows = static_cast<std::int64_t>(qkv.size()) / kWidth;
  Program program;
  const Tensor x = program.input("qkv", {DType::f32, {rows, kWidth}});
  const Tensor o =
      attention(x, program.input("cu_seqlens", {DType::i32, {static_cast<std::int64_t>(cu_seqlens.size())}}), kGrouped);
  program.output("o", o);
  const GradientSeed seed{o, program.input("grad_o", o.type())};
  program.output("gradient", append_gradients(program, std::span(&seed, 1), std::span(&x, 1))[0]);
  TestRun run(std::move(program));
  run.set("qkv", qkv);
  run.set("grad_o", grad_o);
  run.set("cu_seqlens", cu_seqlens);
  run.executable().run();
  return {run.output<float>("o", grad_o.size()), run.output<float>("gradient", qkv.size())};
}

TEST(Attention, SequenceDoesNotDependOnItsNeighbours) {
  constexpr std::int64_t kBefore = 37, kLength = 90, kAfter = 13, kOut = 4 * 16;
  const std::vector<float> qkv = normal_values<float>((kBefore + kLength + kAfter) * kWidth, 1);
  const std::vector<float> grad_o = normal_values<float>((kBefore + kLength + kAfter) * kOut, 2);
  const AttentionResult packed = run(qkv, grad_o, {0, kBefore, kBefore + kLength, kBefore + kLength + kAfter});
  const auto part = [](const std::vector<float>& values, std::int64_t width) {
    return std::vector<float>(values.begin() + kBefore * width, values.begin() + (kBefore + kLength) * width);
  };
  const AttentionResult alone = run(part(qkv, kWidth), part(grad_o, kOut), {0, kLength});
  EXPECT_TRUE(same_bits(alone.o, part(packed.o, kOut)));
  EXPECT_TRUE(same_bits(alone.gradient, part(packed.gradient, kWidth)));
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  Program program;
  const Tensor cu_seqlens = program.input("cu_seqlens", {DType::i32, {3}});
  const Tensor qkv = program.input("qkv", {DType::f32, {4, kWidth}});
  EXPECT_THROW((void)attention(qkv, cu_seqlens, {.heads = 4, .kv_heads = 3, .head_dim = 16}), Error);
  EXPECT_THROW((void)attention(qkv, cu_seqlens, {.heads = 5, .kv_heads = 2, .head_dim = 16}), Error);
  EXPECT_THROW((void)attention(qkv, qkv, kGrouped), Error);
}

}  // namespace
}  // namespace hone::test
