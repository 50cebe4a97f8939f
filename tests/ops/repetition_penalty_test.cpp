#include "ops/repetition_penalty/repetition_penalty.h"

#include <gtest/gtest.h>

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

// The ids after those of all samples are garbage.
OpCase penalty_case(std::int64_t vocab) {
  return {
      .name = "repetition_penalty_" + std::to_string(vocab),
      .inputs =
          {{.name = "logits", .type = {DType::kF32, {{5, Count::samples}, vocab}}, .scale = 4.0, .keeps_dtype = true},
           {.name = "penalties",
            .type = {DType::kF32, {{5, Count::samples}}},
            .values = {1.3, 2.0, 0.7, 1.0, 1.1},
            .differentiable = false,
            .keeps_dtype = true},
           {.name = "offsets", .type = {DType::kI32, {6}}, .values = {0, 3, 3, 5, 6, 9}},
           {.name = "ids",
            .type = {DType::kI32, {11}},
            .values = {2, static_cast<double>(vocab - 1), 0, 1, 5, 3, 4, 7, 6, kGarbage, kGarbage}}},
      .below = {{Count::samples, 3}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {repetition_penalty(in[0], in[1], in[2], in[3])};
      },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            std::vector<Values> outputs{in[0]};
            const std::int64_t used = rows_in_use(counts, Count::samples, 5);
            for (std::int64_t row = 0; row < used; ++row) {
              for (auto i = static_cast<std::size_t>(in[2][row]); i < static_cast<std::size_t>(in[2][row + 1]); ++i) {
                double& logit = outputs[0][static_cast<std::size_t>(row * vocab) + static_cast<std::size_t>(in[3][i])];
                logit = logit > 0 ? logit / in[1][row] : logit * in[1][row];
              }
            }
            return outputs;
          },
      .seeded = {false},
  };
}

TEST(RepetitionPenalty, Cases) {
  for (const std::int64_t vocab : {11, 307, 4096, 9000}) check(penalty_case(vocab));
}

// Ids and offsets of samples that are not in use are garbage.
TEST(RepetitionPenalty, LeavesInfinitiesAndWhatIsNotInUse) {
  register_operations();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Program program;
  const Dim samples{3, Count::samples};
  program.output("result", repetition_penalty(program.input("logits", {DType::kF32, {samples, 6}}),
                                              program.input("penalties", {DType::kF32, {samples}}),
                                              program.input("offsets", {DType::kI32, {4}}),
                                              program.input("ids", {DType::kI32, {8}})));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  std::vector<float> logits{kInfinity, -kInfinity, std::nanf(""), 0.0f, 1.0f, -1.0f};
  logits.resize(18, 3.0f);
  executable.set<float>("logits", logits);
  executable.set<float>("penalties", std::vector<float>{2.0f, 2.0f, 2.0f});
  executable.set<std::int32_t>("offsets", std::vector<std::int32_t>{0, 6, kGarbage, -kGarbage});
  executable.set<std::int32_t>("ids", std::vector<std::int32_t>{5, 4, 3, 2, 1, 0, kGarbage, -kGarbage});
  executable.set_count(Count::samples, 1);
  executable.run();
  std::vector<float> result(18);
  executable.get<float>("result", result);
  EXPECT_EQ(result[0], kInfinity);
  EXPECT_EQ(result[1], -kInfinity);
  EXPECT_TRUE(std::isnan(result[2]));
  EXPECT_EQ(result[3], 0.0f);
  EXPECT_EQ(result[4], 0.5f);
  EXPECT_EQ(result[5], -2.0f);
  EXPECT_EQ(std::vector<float>(result.begin() + 6, result.end()), std::vector<float>(12, 0.0f));
}

}  // namespace
}  // namespace hone::test
