#include "ops/latent_projection/latent_projection.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/op_case.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

// Sums over the rows of `up` that make the keys of a head, or its values.
OpCase projection_case(const LatentHeadsAttributes& a, std::int64_t rank, bool of_queries) {
  constexpr std::int64_t kRows = 5;
  const std::int64_t width = of_queries ? a.query_width() : a.heads * rank;
  return {
      .name = of_queries ? "latent_projection_queries" : "latent_projection_values",
      .inputs = {{.name = "x", .type = {DType::kF32, {{kRows, Count::tokens}, width}}, .differentiable = false},
                 {.name = "up", .type = {DType::kF32, {a.kv_width(), rank}}, .weight = true, .differentiable = false}},
      .below = {{Count::tokens, 3}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {of_queries ? latent_projection_queries(in[0], in[1], a) : latent_projection_values(in[0], in[1], a)};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y;
            for (std::int64_t row = 0; row < kRows; ++row) {
              for (std::int64_t head = 0; head < a.heads; ++head) {
                const auto weight = in[1].begin() + head * (a.nope_dim + a.value_dim) * rank;
                const auto x = in[0].begin() + row * width + head * (of_queries ? a.head_dim() : rank);
                for (std::int64_t i = 0; i < (of_queries ? rank : a.value_dim); ++i) {
                  double sum = 0;
                  for (std::int64_t k = 0; k < (of_queries ? a.nope_dim : rank); ++k)
                    sum += x[k] * (of_queries ? weight[k * rank + i] : weight[(a.nope_dim + i) * rank + k]);
                  y.push_back(sum);
                }
                if (of_queries) y.insert(y.end(), x + a.nope_dim, x + a.head_dim());
              }
            }
            return std::vector<Values>{y};
          },
      .seeded = {false},
  };
}

TEST(LatentProjection, Cases) {
  for (const bool of_queries : {true, false}) {
    check(projection_case({.heads = 3, .nope_dim = 8, .rope_dim = 4, .value_dim = 6}, 10, of_queries));
    check(projection_case({.heads = 2, .nope_dim = 72, .rope_dim = 8, .value_dim = 40}, 136, of_queries));
  }
}

// One row alone, and in a step with others.
template <class T>
void expect_rows_alone(bool of_queries) {
  constexpr LatentHeadsAttributes kHeads{.heads = 4, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  constexpr std::int64_t kRank = 512, kRows = 70;
  const std::int64_t width = of_queries ? kHeads.query_width() : kHeads.heads * kRank;
  const std::int64_t out = of_queries ? kHeads.heads * (kRank + kHeads.rope_dim) : kHeads.heads * kHeads.value_dim;
  const std::vector<T> x = normal_values<T>(static_cast<std::size_t>(kRows * width), 1);
  const std::vector<T> up = normal_values<T>(static_cast<std::size_t>(kHeads.kv_width() * kRank), 2);
  const auto outputs = [&](std::int64_t first, std::int64_t rows) {
    Program program;
    const Tensor of = program.input("x", {DTypeOf<T>::value, {rows, width}});
    const Tensor weight = program.weight("up", {DTypeOf<T>::value, {kHeads.kv_width(), kRank}});
    program.output(
        "y", of_queries ? latent_projection_queries(of, weight, kHeads) : latent_projection_values(of, weight, kHeads));
    TestRun run(std::move(program));
    run.set_weight("up", up);
    run.set("x", std::vector<T>(x.begin() + first * width, x.begin() + (first + rows) * width));
    run.executable().run();
    return run.output<T>("y", static_cast<std::size_t>(rows * out));
  };
  const std::vector<T> all = outputs(0, kRows);
  for (const std::int64_t row : {0, 13, 69}) {
    EXPECT_TRUE(same_bits(outputs(row, 1), std::vector<T>(all.begin() + row * out, all.begin() + (row + 1) * out)))
        << (of_queries ? "queries" : "values") << ", row " << row;
  }
}

TEST(LatentProjection, OtherRowsChangeNoBit) {
  for (const bool of_queries : {true, false}) {
    expect_rows_alone<float>(of_queries);
    expect_rows_alone<BFloat16>(of_queries);
  }
}

}  // namespace
}  // namespace hone::test
