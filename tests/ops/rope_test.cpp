#include "ops/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "support/paths.h"

namespace hone::test {
namespace {

// Positions are far apart, so that a wrong row or a wrong frequency changes the result.
OpCase rope_case(std::int64_t rows, std::int64_t all_heads, const RopeAttributes& a) {
  const std::int64_t n = all_heads * a.head_dim;
  const std::int64_t half = a.rotated_dim() / 2;
  const RopeTableAttributes table{.head_dim = a.rotated_dim(), .theta = 100.0};
  OpCase op_case{
      .name = text_of("rope_", rows, "x", all_heads, "x", a.head_dim, a.inverse ? "_inverse" : "",
                      a.offset > 0 ? "_offset" : "", a.interleaved ? "_interleaved" : ""),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"positions", {DType::kI32, {{rows, Count::tokens}}}}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {rope(in[0], rope_table(in[1], table), a)};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y = in[0];
            const std::vector<float> frequencies = rope_inverse_frequencies(table);
            for (std::int64_t row = 0; row < rows; ++row) {
              for (std::int64_t head = 0; head < a.heads; ++head) {
                for (std::int64_t i = 0; i < half; ++i) {
                  const float angle = static_cast<float>(in[1][row]) * frequencies[static_cast<std::size_t>(i)];
                  const double cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
                  const double sine =
                      (a.inverse ? -1.0 : 1.0) * static_cast<float>(std::sin(static_cast<double>(angle)));
                  const std::int64_t at = row * n + head * a.head_dim + a.offset + (a.interleaved ? 2 * i : i);
                  const std::int64_t partner = at + (a.interleaved ? 1 : half);
                  y[at] = in[0][at] * cosine - in[0][partner] * sine;
                  y[partner] = in[0][partner] * cosine + in[0][at] * sine;
                }
              }
            }
            return std::vector<Values>{y};
          },
  };
  for (std::int64_t row = 0; row < rows; ++row) op_case.inputs[1].values.push_back(static_cast<double>(row * 37 % 101));
  return op_case;
}

TEST(Rope, Cases) {
  check(rope_case(1, 1, {.heads = 1, .head_dim = 2}));
  check(rope_case(9, 5, {.heads = 3, .head_dim = 8}));
  check(rope_case(9, 5, {.heads = 3, .head_dim = 8, .inverse = true}));
  check(rope_case(70, 4, {.heads = 4, .head_dim = 32}));
  check(rope_case(3, 2, {.heads = 0, .head_dim = 4}));
  check(rope_case(9, 5, {.heads = 3, .head_dim = 8, .interleaved = true}));
  check(rope_case(9, 4, {.heads = 3, .head_dim = 24, .offset = 16}));
  check(rope_case(9, 4, {.heads = 3, .head_dim = 24, .offset = 16, .interleaved = true}));
  check(rope_case(70, 4, {.heads = 4, .head_dim = 192, .inverse = true, .offset = 128, .interleaved = true}));
  check(rope_case(5, 3, {.heads = 2, .head_dim = 9, .offset = 3}));
}

RopeTableAttributes table_attributes(const Json& entry) {
  RopeTableAttributes a{.head_dim = entry["head_dim"], .theta = entry["theta"]};
  const Json& scaling = entry["scaling"];
  a.scaling = scaling["rope_type"];
  if (a.scaling == "default") return a;
  a.factor = scaling["factor"];
  a.original_max_position_embeddings = scaling["original_max_position_embeddings"];
  if (a.scaling == "yarn") {
    a.beta_fast = scaling.value("beta_fast", 32.0);
    a.beta_slow = scaling.value("beta_slow", 1.0);
    a.truncate = scaling.value("truncate", true);
    a.attention_factor = entry["attention_factor"];
    return a;
  }
  a.low_freq_factor = scaling["low_freq_factor"];
  a.high_freq_factor = scaling["high_freq_factor"];
  return a;
}

TEST(Rope, AgreesWithTransformers) {
  const Json reference = read_json(fixture("ops/rope.json"));
  for (const Json& entry : reference["cases"]) {
    const RopeTableAttributes a = table_attributes(entry);
    const auto frequencies = entry["inverse_frequencies"].get<std::vector<float>>();
    EXPECT_EQ(rope_inverse_frequencies(a), frequencies) << entry["scaling"];

    const auto positions = entry["positions"].get<std::vector<std::int32_t>>();
    const auto x = entry["x"].get<std::vector<float>>();
    const auto rows = static_cast<std::int64_t>(positions.size());
    Program program;
    const Tensor table = rope_table(program.input("positions", {DType::kI32, {rows}}), a);
    program.output("table", table);
    program.output("y", rope(program.input("x", {DType::kF32, {rows, 2 * a.head_dim}}), table,
                             {.heads = 2, .head_dim = a.head_dim}));
    TestRun run(std::move(program));
    run.set("positions", positions);
    run.set("x", x);
    run.executable().run();
    const auto expect_near = [](const std::vector<float>& values, const Json& expected, float tolerance) {
      ASSERT_EQ(values.size(), expected.size());
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i].get<float>(), tolerance) << i;
    };
    expect_near(run.output<float>("table", entry["table"].size()), entry["table"], 2e-7f);
    expect_near(run.output<float>("y", x.size()), entry["y"], 2e-6f);
  }
}

TEST(Rope, RefusesWhatDoesNotFit) {
  Program program;
  const Tensor positions = program.input("positions", {DType::kI32, {4}});
  EXPECT_THROW((void)rope_table(positions, {.head_dim = 7}), Error);
  EXPECT_THROW((void)rope_table(positions, {.head_dim = 8, .scaling = "longrope"}), Error);
  EXPECT_THROW((void)rope_table(positions, {.head_dim = 8, .scaling = "yarn", .beta_slow = 0.0}), Error);
  EXPECT_THROW((void)rope_table(positions, {.head_dim = 8, .low_freq_factor = 4.0}), Error);
  const Tensor table = rope_table(positions, {.head_dim = 8});
  const Tensor x = program.input("x", {DType::kF32, {4, 16}});
  EXPECT_THROW((void)rope(x, table, {.heads = 3, .head_dim = 8}), Error);
  EXPECT_THROW((void)rope(x, table, {.heads = 2, .head_dim = 4}), Error);
  EXPECT_NO_THROW((void)rope(x, table, {.heads = 1, .head_dim = 16, .offset = 8}));
  EXPECT_THROW((void)rope(x, table, {.heads = 1, .head_dim = 16, .offset = 9}), Error);
  EXPECT_THROW((void)rope(x, table, {.heads = 1, .head_dim = 16, .offset = 16}), Error);
  EXPECT_THROW((void)rope(x, table, {.heads = 1, .head_dim = 16, .offset = 6}), Error);
}

}  // namespace
}  // namespace hone::test
