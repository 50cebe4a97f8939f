#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/parallel.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "passes/gradient.h"
#include "support/device.h"

namespace hone::test {
namespace {

OpCase embedding_case(const std::vector<double>& tokens, std::int64_t vocab, std::int64_t hidden) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  OpCase op_case{
      .name = "embedding_" + std::to_string(rows) + "_" + std::to_string(vocab) + "x" + std::to_string(hidden),
      .inputs = {{"tokens", {DType::kI32, {{rows, Count::tokens}}}}, {"weight", {DType::kF32, {vocab, hidden}}, true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {embedding(in[0], in[1])}; },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            Values y(static_cast<std::size_t>(rows * hidden));
            const std::int64_t used = rows_in_use(counts, Count::tokens, rows);
            for (std::int64_t row = 0; row < used; ++row) {
              for (std::int64_t i = 0; i < hidden; ++i) {
                y[row * hidden + i] = in[1][static_cast<std::int64_t>(in[0][row]) * hidden + i];
              }
            }
            return std::vector<Values>{y};
          },
  };
  op_case.inputs[0].values = tokens;
  return op_case;
}

TEST(Embedding, Cases) {
  check(embedding_case({0}, 1, 4));
  check(embedding_case({4, 0, 2, 2, 2, 1, 4}, 5, 7));
  std::vector<double> many;
  for (int i = 0; i < 200; ++i) many.push_back(i * i % 31);
  check(embedding_case(many, 40, 130));
}

// Tokens with as many rows as the GPU adds in one block (32), and with more.
TEST(Embedding, TokensOfManyRows) {
  std::vector<double> tokens;
  const std::vector<int> counts{32, 33, 1, 300, 2, 0, 64, 31};
  for (int turn = 0; turn < 300; ++turn) {
    for (std::size_t token = 0; token < counts.size(); ++token) {
      if (turn * 7 % 300 < counts[token]) tokens.push_back(static_cast<double>(token));
    }
  }
  check(embedding_case(tokens, 9, 96));
  check(embedding_case(tokens, 9, 520));
}

// Tokens in the part, before it and after it.
TEST(Embedding, PartCases) {
  constexpr std::int64_t kFirst = 5, kRows = 6, kHidden = 7, kTokens = 9;
  OpCase op_case{
      .name = "embedding_part",
      .inputs = {{"tokens", {DType::kI32, {{kTokens, Count::tokens}}}},
                 {"weight", {DType::kF32, {kRows, kHidden}}, true}},
      .below = {{Count::tokens, 5}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {embedding_part(in[0], in[1], {.first = kFirst, .vocab = 17})};
      },
      .reference =
          [](std::span<const Values> in, const Counts& counts) {
            Values y(kTokens * kHidden);
            for (std::int64_t row = 0; row < rows_in_use(counts, Count::tokens, kTokens); ++row) {
              const std::int64_t own = static_cast<std::int64_t>(in[0][row]) - kFirst;
              if (own < 0 || own >= kRows) continue;
              for (std::int64_t i = 0; i < kHidden; ++i) y[row * kHidden + i] = in[1][own * kHidden + i];
            }
            return std::vector<Values>{y};
          },
  };
  op_case.inputs[0].values = {5, 10, 4, 11, 7, 7, 16, 0, 10};
  check(op_case);
}

std::vector<std::byte> weight_gradient(int threads) {
  constexpr std::int64_t kRows = 500, kVocab = 3, kHidden = 256;
  Program program;
  const Tensor tokens = program.input("tokens", {DType::kI32, {kRows}});
  const Tensor y = embedding(tokens, program.weight("weight", {DType::kF32, {kVocab, kHidden}}));
  const GradientSeed seed{y, program.input("dy", y.type())};
  (void)append_gradients(program, std::span(&seed, 1));
  TestRun run(std::move(program));
  std::vector<std::int32_t> ids;
  for (int i = 0; i < kRows; ++i) ids.push_back(i % 7 % kVocab);
  run.set("tokens", ids);
  run.set("dy", normal_values<float>(kRows * kHidden, 5));
  const int before = thread_count();
  set_thread_count(threads);
  run.executable().run();
  set_thread_count(before);
  return run.gradient("weight");
}

TEST(Embedding, GradientDoesNotDependOnThreads) {
  const std::vector<std::byte> one = weight_gradient(1);
  EXPECT_TRUE(same_bits(weight_gradient(2), one));
  EXPECT_TRUE(same_bits(weight_gradient(4), one));
}

TEST(Embedding, TokenOutsideTheVocabularyIsADefect) {
  if (!test_device_throws()) GTEST_SKIP() << "kernels of a GPU throw nothing";
  for (const bool is_part : {false, true}) {
    for (const std::int32_t token : {-1, is_part ? 9 : 3}) {
      Program program;
      const Tensor tokens = program.input("tokens", {DType::kI32, {{2, Count::tokens}}});
      const Tensor weight = program.weight("weight", {DType::kF32, {3, 2}});
      program.output("y",
                     is_part ? embedding_part(tokens, weight, {.first = 3, .vocab = 9}) : embedding(tokens, weight));
      TestRun run(std::move(program));
      run.set<std::int32_t>("tokens", {0, token});
      EXPECT_THROW(run.executable().run(), Defect);
      run.executable().set_count(Count::tokens, 1);
      EXPECT_NO_THROW(run.executable().run());
    }
  }
}

}  // namespace
}  // namespace hone::test
