#include "ops/adjust_logits/adjust_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

constexpr std::int32_t kGarbage = std::numeric_limits<std::int32_t>::max();

// The value of an entry by the definition, in f64: parameters are repetition, frequency, presence.
double adjusted(double logit, const double* parameters, bool in_prompt, std::int64_t generated, double bias) {
  double value = logit + bias;
  if (in_prompt || generated > 0) value = value > 0 ? value / parameters[0] : value * parameters[0];
  value -= parameters[1] * static_cast<double>(generated);
  return generated > 0 ? value - parameters[2] : value;
}

Values expected_logits(std::span<const Values> in, std::int64_t vocab, std::int64_t used) {
  Values result = in[0];
  for (std::int64_t row = 0; row < used; ++row) {
    const auto at = static_cast<std::size_t>(row);
    const double* parameters = in[1].data() + 4 * at;
    const double* raw = in[0].data() + row * vocab;
    double* to = result.data() + row * vocab;
    const auto newest =
        in[3][at] < 0 ? std::int64_t{-1} : static_cast<std::int64_t>(in[2][static_cast<std::size_t>(in[3][at])]);
    bool has_entry = newest < 0;
    if (parameters[3] != 0) std::fill_n(to, vocab, -std::numeric_limits<double>::infinity());
    for (auto i = static_cast<std::size_t>(in[4][at]); i < static_cast<std::size_t>(in[4][at + 1]); ++i) {
      const auto id = static_cast<std::int64_t>(in[5][i]);
      const auto occurrences = static_cast<std::int64_t>(in[6][i]);
      has_entry = has_entry || id == newest;
      to[id] = adjusted(raw[id], parameters, occurrences % 2 == 1, occurrences / 2 + (id == newest ? 1 : 0), in[7][i]);
    }
    if (!has_entry) to[newest] = adjusted(raw[newest], parameters, false, 1, 0);
    const auto words = (vocab + 31) / 32;
    for (std::int64_t token = 0; token < vocab && in[8][at] >= 0; ++token) {
      const auto word = static_cast<std::size_t>(static_cast<std::int64_t>(in[8][at]) * words + token / 32);
      const auto bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(in[9][word]));
      if ((bits >> (token % 32) & 1U) == 0) to[token] = -std::numeric_limits<double>::infinity();
    }
  }
  return result;
}

// Words of two masks: every third token, and none but the last.
Values mask_words_of(std::int64_t vocab) {
  const std::int64_t words = (vocab + 31) / 32;
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(2 * words), 0);
  for (std::int64_t token = 0; token < vocab; token += 3)
    bits[static_cast<std::size_t>(token / 32)] |= 1U << (token % 32);
  bits[static_cast<std::size_t>(words + (vocab - 1) / 32)] |= 1U << ((vocab - 1) % 32);
  Values values;
  for (const std::uint32_t word : bits) values.push_back(static_cast<double>(static_cast<std::int32_t>(word)));
  return values;
}

// Rows: all penalties, and a mask of which entries are a part; no entry, and an unread token that a mask forbids; an
// unread token with an entry; biases and a ban; a restriction. The entries after those of all samples are garbage.
OpCase adjustment_case(std::int64_t vocab) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto last = static_cast<double>(vocab - 1);
  const Dim samples{5, Count::samples};
  return {
      .name = "adjust_logits_" + std::to_string(vocab),
      .inputs = {{.name = "logits", .type = {DType::kF32, {samples, vocab}}, .scale = 4.0, .keeps_dtype = true},
                 {.name = "parameters",
                  .type = {DType::kF32, {samples, kAdjustmentParameters}},
                  .values = {1.3, 0.5, 0.25, 0, 2, 0.5, 1, 0, 0.7, -0.5, -1, 0, 1, 0, 0, 0, 1.5, 0, 0, 1},
                  .differentiable = false,
                  .keeps_dtype = true},
                 {.name = "sampled", .type = {DType::kI32, {4}}, .values = {last, 9, 3, 0}},
                 {.name = "unread", .type = {DType::kI32, {samples}}, .values = {-1, 1, 2, -1, -1}},
                 {.name = "offsets", .type = {DType::kI32, {6}}, .values = {0, 3, 3, 5, 7, 10}},
                 {.name = "ids",
                  .type = {DType::kI32, {12}},
                  .values = {2, last, 0, 1, 3, 5, 4, 7, 6, 8, kGarbage, kGarbage}},
                 {.name = "occurrences",
                  .type = {DType::kI32, {12}},
                  .values = {1, 4, 7, 2, 1, 0, 0, 0, 1, 2, kGarbage, kGarbage}},
                 {.name = "biases",
                  .type = {DType::kF32, {12}},
                  .values = {0, 0, 1.5, 0, -2, 3, -infinity, 0, 0, 2, infinity, infinity},
                  .differentiable = false,
                  .keeps_dtype = true},
                 {.name = "mask_rows", .type = {DType::kI32, {samples}}, .values = {0, 1, -1, -1, 0}},
                 {.name = "masks", .type = {DType::kI32, {2, (vocab + 31) / 32}}, .values = mask_words_of(vocab)}},
      .below = {{Count::samples, 3}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const AdjustedLogits result =
            adjust_logits(in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], in[9]);
        return {result.logits, result.adjusted};
      },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            const std::int64_t used = rows_in_use(counts, Count::samples, 5);
            return std::vector<Values>{expected_logits(in, vocab, used), Values(5, 1.0)};
          },
      .seeded = {false, false},
  };
}

TEST(AdjustLogits, Cases) {
  for (const std::int64_t vocab : {11, 307, 4096, 9000}) check(adjustment_case(vocab));
}

// The inputs of samples that are not in use are garbage. Neutral parameters keep every bit of an entry's logit.
TEST(AdjustLogits, LeavesInfinitiesAndWhatIsNotInUse) {
  register_operations();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Program program;
  const Dim samples{3, Count::samples};
  program.output(
      "result",
      adjust_logits(program.input("logits", {DType::kF32, {samples, 6}}),
                    program.input("parameters", {DType::kF32, {samples, kAdjustmentParameters}}),
                    program.input("sampled", {DType::kI32, {2}}), program.input("unread", {DType::kI32, {samples}}),
                    program.input("offsets", {DType::kI32, {4}}), program.input("ids", {DType::kI32, {14}}),
                    program.input("occurrences", {DType::kI32, {14}}), program.input("biases", {DType::kF32, {14}}),
                    program.input("mask_rows", {DType::kI32, {samples}}), program.input("masks", {DType::kI32, {1, 1}}))
          .logits);
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  std::vector<float> logits{kInfinity, -kInfinity, std::nanf(""), 0.0f, 1.0f, -1.0f};
  logits.insert(logits.end(), {0.1f, -0.3f, 1e-30f, -1e30f, 7.7f, -5.5f});
  logits.resize(18, 3.0f);
  executable.set<float>("logits", logits);
  executable.set<float>("parameters", std::vector<float>{2, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9});
  executable.set<std::int32_t>("sampled", std::vector<std::int32_t>{kGarbage, 4});
  executable.set<std::int32_t>("unread", std::vector<std::int32_t>{-1, 1, kGarbage});
  executable.set<std::int32_t>("offsets", std::vector<std::int32_t>{0, 6, 12, -kGarbage});
  executable.set<std::int32_t>("ids", std::vector<std::int32_t>{5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5, kGarbage, -1});
  executable.set<std::int32_t>("occurrences", std::vector<std::int32_t>{1, 1, 1, 1, 1, 1, 1, 2, 3, 9, 0, 1, 1, 1});
  executable.set<float>("biases", std::vector<float>(14, 0.0f));
  executable.set<std::int32_t>("mask_rows", std::vector<std::int32_t>{-1, -1, kGarbage});
  executable.set_count(Count::samples, 2);
  executable.run();
  std::vector<float> result(18);
  executable.get<float>("result", result);
  EXPECT_EQ(result[0], kInfinity);
  EXPECT_EQ(result[1], -kInfinity);
  EXPECT_TRUE(std::isnan(result[2]));
  EXPECT_EQ(result[3], 0.0f);
  EXPECT_EQ(result[4], 0.5f);
  EXPECT_EQ(result[5], -2.0f);
  EXPECT_EQ(std::vector<float>(result.begin() + 6, result.begin() + 12),
            std::vector<float>(logits.begin() + 6, logits.begin() + 12));
  EXPECT_EQ(std::vector<float>(result.begin() + 12, result.end()), std::vector<float>(6, 0.0f));
}

// A sample is adjusted by a restriction, an entry, an unread token or a mask, each alone. Of other samples no logit is
// written.
TEST(AdjustLogits, LeavesTheLogitsOfOtherSamplesWhereTheyAre) {
  register_operations();
  constexpr std::int64_t kRows = 6;
  constexpr std::int64_t kVocab = 40;
  Program program;
  const Dim samples{kRows, Count::samples};
  const AdjustedLogits adjusted = adjust_logits(
      program.input("logits", {DType::kF32, {samples, kVocab}}),
      program.input("parameters", {DType::kF32, {samples, kAdjustmentParameters}}),
      program.input("sampled", {DType::kI32, {1}}), program.input("unread", {DType::kI32, {samples}}),
      program.input("offsets", {DType::kI32, {kRows + 1}}), program.input("ids", {DType::kI32, {1}}),
      program.input("occurrences", {DType::kI32, {1}}), program.input("biases", {DType::kF32, {1}}),
      program.input("mask_rows", {DType::kI32, {samples}}), program.input("masks", {DType::kI32, {1, 2}}));
  program.output("result", adjusted.logits);
  program.output("adjusted", adjusted.adjusted);
  // The rows that the operation leaves alone show what the memory had before: that of an earlier run.
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  const auto run = [&](float logit, const std::vector<float>& restricts) {
    executable.set<float>("logits", std::vector<float>(static_cast<std::size_t>(kRows * kVocab), logit));
    std::vector<float> parameters;
    for (const float each : restricts) parameters.insert(parameters.end(), {1, 0, 0, each});
    executable.set<float>("parameters", parameters);
    executable.run();
    std::vector<float> result(static_cast<std::size_t>(kRows * kVocab));
    executable.get<float>("result", result);
    return result;
  };
  executable.set<std::int32_t>("sampled", std::vector<std::int32_t>{7});
  executable.set<std::int32_t>("unread", std::vector<std::int32_t>{-1, -1, -1, 0, -1, -1});
  executable.set<std::int32_t>("offsets", std::vector<std::int32_t>{0, 0, 0, 1, 1, 1, 1});
  executable.set<std::int32_t>("ids", std::vector<std::int32_t>{3});
  executable.set<std::int32_t>("occurrences", std::vector<std::int32_t>{0});
  executable.set<float>("biases", std::vector<float>{2});
  executable.set<std::int32_t>("mask_rows", std::vector<std::int32_t>{-1, -1, -1, -1, 0, -1});
  executable.set<std::int32_t>("masks", std::vector<std::int32_t>{-1, -1});
  (void)run(5.0f, std::vector<float>(kRows, 1.0f));
  const std::vector<float> result = run(1.0f, {0, 1, 0, 0, 0, 0});
  std::vector<std::int32_t> flags(kRows);
  executable.get<std::int32_t>("adjusted", flags);
  EXPECT_EQ(flags, (std::vector<std::int32_t>{0, 1, 1, 1, 1, 0}));
  const float before = -std::numeric_limits<float>::infinity();  // the first run restricted all rows
  for (std::size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(result[row * kVocab + 30], flags[row] == 0 || row == 1 ? before : 1.0f) << row;
  }
  EXPECT_EQ(result[2 * kVocab + 3], 3.0f);
}

}  // namespace
}  // namespace hone::test
