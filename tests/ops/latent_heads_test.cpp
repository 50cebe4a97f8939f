#include "ops/latent_heads/latent_heads.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "passes/gradient.h"
#include "program/text.h"

namespace hone::test {
namespace {

Values packed_by_definition(std::span<const Values> in, std::int64_t rows, const LatentHeadsAttributes& a) {
  const std::int64_t head_dim = a.nope_dim + a.rope_dim;
  const std::int64_t of_kv = a.nope_dim + a.value_dim;
  Values qkv(static_cast<std::size_t>(rows * 3 * a.heads * head_dim), 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < a.heads; ++head) {
      for (std::int64_t i = 0; i < head_dim; ++i) {
        double* at = qkv.data() + (row * 3 * a.heads + head) * head_dim + i;
        const double* kv = in[1].data() + (row * a.heads + head) * of_kv;
        at[0] = in[0][static_cast<std::size_t>((row * a.heads + head) * head_dim + i)];
        at[a.heads * head_dim] =
            i < a.nope_dim ? kv[i] : in[2][static_cast<std::size_t>(row * a.rope_dim + i - a.nope_dim)];
        at[2 * a.heads * head_dim] = i < a.value_dim ? kv[a.nope_dim + i] : 0.0;
      }
    }
  }
  return qkv;
}

OpCase latent_heads_case(std::int64_t rows, const LatentHeadsAttributes& a) {
  const Dim tokens(rows, Count::tokens);
  return {
      .name = text_of("latent_heads_", rows, "x", a.heads, "x", a.nope_dim, "+", a.rope_dim, "_", a.value_dim),
      .inputs = {{"query", {DType::kF32, {tokens, a.heads * (a.nope_dim + a.rope_dim)}}},
                 {"kv", {DType::kF32, {tokens, a.heads * (a.nope_dim + a.value_dim)}}},
                 {"rope_key", {DType::kF32, {tokens, a.rope_dim}}}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {latent_heads(in[0], in[1], in[2], a)};
      },
      .reference = [=](std::span<const Values> in,
                       const Counts&) { return std::vector<Values>{packed_by_definition(in, rows, a)}; },
  };
}

TEST(LatentHeads, Cases) {
  check(latent_heads_case(1, {.heads = 1, .nope_dim = 1, .rope_dim = 1, .value_dim = 1}));
  check(latent_heads_case(9, {.heads = 3, .nope_dim = 12, .rope_dim = 4, .value_dim = 8}));
  check(latent_heads_case(7, {.heads = 5, .nope_dim = 16, .rope_dim = 8, .value_dim = 16}));
  check(latent_heads_case(4, {.heads = 2, .nope_dim = 5, .rope_dim = 6, .value_dim = 11}));  // nothing to pad
  check(latent_heads_case(3, {.heads = 40, .nope_dim = 24, .rope_dim = 16, .value_dim = 32}));
}

Program latent_heads_program(const LatentHeadsAttributes& a, std::int64_t kv_width) {
  register_operations();
  Program program;
  const Dim tokens(4, Count::tokens);
  const Tensor query = program.input("query", {DType::kBf16, {tokens, a.heads * (a.nope_dim + a.rope_dim)}});
  const Tensor kv = program.input("kv", {DType::kBf16, {tokens, kv_width}});
  const Tensor rope_key = program.input("rope_key", {DType::kBf16, {tokens, a.rope_dim}});
  const Tensor qkv = latent_heads(query, kv, rope_key, a);
  const GradientSeed seed{qkv, program.input("seed", qkv.type())};
  const std::vector<Tensor> wanted{query, kv, rope_key};
  const std::vector<Tensor> gradients = append_gradients(program, std::span(&seed, 1), wanted);
  for (std::size_t i = 0; i < gradients.size(); ++i) program.output(text_of("gradient", i), gradients[i]);
  return program;
}

TEST(LatentHeads, TextRoundTrips) {
  const std::string text =
      to_text(latent_heads_program({.heads = 2, .nope_dim = 3, .rope_dim = 2, .value_dim = 4}, 14));
  EXPECT_NE(text.find("latent_heads(%0, %1, %2) {heads=2, nope_dim=3, rope_dim=2, value_dim=4}"), std::string::npos)
      << text;
  EXPECT_NE(text.find("latent_heads_backward(%"), std::string::npos) << text;
  EXPECT_EQ(to_text(program_from_text(text)), text);
}

// The cost counts the bytes that are read and written: query, kv, rope_key and qkv in the forward pass; in the backward
// pass the rope key's part of every head, but not the padding of the values.
TEST(LatentHeads, CostIsWhatIsTouched) {
  const Program program = latent_heads_program({.heads = 2, .nope_dim = 3, .rope_dim = 2, .value_dim = 4}, 14);
  ASSERT_EQ(program.nodes().size(), 2u);
  const Cost forward = program.cost(program.nodes()[0]);
  EXPECT_EQ(forward.flops, 0.0);
  EXPECT_EQ(forward.bytes_read, 4 * (10 + 14 + 2) * 2.0);
  EXPECT_EQ(forward.bytes_written, 4 * 30 * 2.0);
  const Cost backward = program.cost(program.nodes()[1]);
  EXPECT_EQ(backward.flops, 4 * 2 * 2.0);
  EXPECT_EQ(backward.bytes_read, 4 * (10 + 14 + 4) * 2.0);
  EXPECT_EQ(backward.bytes_written, 4 * (10 + 14 + 2) * 2.0);
}

std::string refusal(const LatentHeadsAttributes& a, std::int64_t kv_width) {
  try {
    (void)latent_heads_program(a, kv_width);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LatentHeads, RefusesWhatDoesNotFit) {
  const std::string long_values = refusal({.heads = 2, .nope_dim = 3, .rope_dim = 2, .value_dim = 6}, 18);
  EXPECT_NE(long_values.find("value_dim 6"), std::string::npos) << long_values;
  EXPECT_NE(long_values.find("head_dim 5"), std::string::npos) << long_values;
  const std::string narrow = refusal({.heads = 2, .nope_dim = 3, .rope_dim = 2, .value_dim = 4}, 13);
  EXPECT_NE(narrow.find("bf16[tokens:4, 13]"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("[rows, 14]"), std::string::npos) << narrow;
  EXPECT_NE(refusal({.heads = 2, .nope_dim = 3, .rope_dim = 0, .value_dim = 3}, 12).find("positive"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::test
