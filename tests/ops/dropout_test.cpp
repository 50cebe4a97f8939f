#include "ops/dropout/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

OpCase dropout_case(std::int64_t rows, std::int64_t n, double probability, std::int64_t site) {
  const auto draw = dropout_draw(7, 3, 1);
  return {
      .name = text_of("dropout_", rows, "x", n, "_", probability),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}},
                 {"draw", {DType::kI32, {kDropoutDraw}}, false, Values(draw.begin(), draw.end())}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {dropout(in[0], in[1], {.probability = probability, .site = site})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            std::array<std::uint32_t, 4> words{};
            for (std::size_t i = 0; i < 4; ++i) words[i] = static_cast<std::uint32_t>(draw[i]);
            const double threshold = std::round(probability * 65536.0);
            Values y = in[0];
            for (std::size_t i = 0; i < y.size(); ++i) {
              const auto block =
                  philox((std::uint64_t{words[1]} << 32) | words[0],
                         {static_cast<std::uint32_t>(i / 8), static_cast<std::uint32_t>(site), words[2], words[3]});
              const std::uint32_t word = block[i % 8 / 2];
              const double number = i % 2 == 0 ? word % 65536 : word / 65536;
              y[i] = number < threshold ? 0.0 : y[i] * 65536.0 / (65536.0 - threshold);
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(Dropout, Cases) {
  check(dropout_case(1, 3, 0.1, 0));
  check(dropout_case(9, 33, 0.2, 5));
  check(dropout_case(130, 96, 0.5, 1));
  check(dropout_case(4, 16, 0.0, 1));
}

// The elements that stay in columns of a value are those of the whole.
TEST(Dropout, PartsAreColumnsOfTheWhole) {
  constexpr std::int64_t kRows = 5;
  for (const auto& [columns, ranks] : {std::pair<std::int64_t, std::int64_t>{32, 2}, {33, 3}, {20, 4}}) {
    const std::int64_t count = columns / ranks;
    Program program;
    const Type whole{DType::kF32, {{kRows, Count::tokens}, columns}};
    const Type part{DType::kF32, {{kRows, Count::tokens}, count}};
    const Tensor draw = program.input("draw", {DType::kI32, {kDropoutDraw}});
    program.output("whole", dropout(program.input("x", whole), draw, {.probability = 0.4, .site = 3}));
    const Tensor x = program.input("part", part);
    for (std::int64_t r = 0; r < ranks; ++r) {
      program.output(text_of("part ", r),
                     dropout_part(x, draw, {.probability = 0.4, .site = 3, .first = r * count, .columns = columns}));
    }
    TestRun run(std::move(program));
    run.set("x", std::vector<float>(static_cast<std::size_t>(kRows * columns), 1.0f));
    run.set("part", std::vector<float>(static_cast<std::size_t>(kRows * count), 1.0f));
    run.executable().set<std::int32_t>("draw", dropout_draw(7, 3, 1));
    run.executable().set_count(Count::tokens, kRows - 1);
    run.executable().run();
    const auto values = [&](const std::string& output, std::int64_t width) {
      return run.output<float>(output, static_cast<std::size_t>(kRows * width));
    };
    const std::vector<float> all = values("whole", columns);
    for (std::int64_t r = 0; r < ranks; ++r) {
      const std::vector<float> own = values(text_of("part ", r), count);
      for (std::int64_t i = 0; i < kRows * count; ++i) {
        const std::int64_t place = i / count * columns + r * count + i % count;
        EXPECT_EQ(own[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(place)]) << columns << ", " << r;
      }
    }
  }
}

struct Draw {
  std::uint64_t seed = 1;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  std::int64_t site = 0;
};

constexpr std::int64_t kElements = 1 << 16;

// Dropout of a tensor of ones.
std::vector<float> dropped_ones(const Draw& draw) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {64, kElements / 64}});
  const Tensor words = program.input("draw", {DType::kI32, {kDropoutDraw}});
  program.output("y", dropout(x, words, {.probability = 0.2, .site = draw.site}));
  TestRun run(std::move(program));
  run.set<float>("x", std::vector<float>(kElements, 1.0f));
  const auto values = dropout_draw(draw.seed, draw.step, draw.micro_batch);
  run.set<std::int32_t>("draw", {values.begin(), values.end()});
  run.executable().run();
  return run.output<float>("y", kElements);
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  const std::vector<float> y = dropped_ones({});
  double zeros = 0, sum = 0;
  for (const float value : y) {
    zeros += value == 0.0f;
    sum += value;
  }
  EXPECT_NEAR(zeros / kElements, 0.2, 0.01);
  EXPECT_NEAR(sum / kElements, 1.0, 0.01);
}

TEST(Dropout, EachDrawIsAnother) {
  const std::vector<float> first = dropped_ones({});
  EXPECT_TRUE(same_bits(dropped_ones({}), first));
  for (const Draw& other : {Draw{.seed = 2}, Draw{.step = 1}, Draw{.micro_batch = 1}, Draw{.site = 1}}) {
    const std::vector<float> y = dropped_ones(other);
    double both = 0;
    for (std::size_t i = 0; i < y.size(); ++i) both += y[i] == 0.0f && first[i] == 0.0f;
    EXPECT_NEAR(both / kElements, 0.04, 0.005);
  }
}

TEST(Dropout, RefusesToDropEverything) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {2, 5}});
  const Tensor draw = program.input("draw", {DType::kI32, {kDropoutDraw}});
  EXPECT_THROW((void)dropout(x, draw, {.probability = 1.0}), Error);
  EXPECT_THROW((void)dropout(x, x, {.probability = 0.5}), Error);
}

}  // namespace
}  // namespace hone::test
