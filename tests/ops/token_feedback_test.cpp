#include "ops/token_feedback/token_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_case.h"

namespace hone::test {
namespace {

TEST(TokenFeedback, Cases) {
  check({
      .name = "token_feedback",
      .inputs = {{.name = "tokens", .type = {DType::kI32, {{5, Count::tokens}}}, .values = {7, -1, 0, -3, -4}},
                 {.name = "sampled", .type = {DType::kI32, {4}}, .values = {10, 20, 30, 40}}},
      .below = {{Count::tokens, 4}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {token_feedback(in[0], in[1])};
      },
      .reference = [](std::span<const Values>, const Counts&) { return std::vector<Values>{{7, 10, 0, 30, 40}}; },
      .seeded = {false},
  });
}

TEST(TokenFeedback, NamesSamplesBelowZero) {
  EXPECT_EQ(token_of_sample(0), -1);
  EXPECT_EQ(token_of_sample(255), -256);
}

}  // namespace
}  // namespace hone::test
