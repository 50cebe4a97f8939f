#include "rl/rollout_message.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace hone {
namespace {

Rollout rollout_of(std::int64_t prompt, double seconds) {
  Rollout rollout;
  rollout.samples = {{.prompt = {1, 2, static_cast<TokenId>(prompt)},
                      .completion = {3},
                      .logps = {-0.1f},
                      .importance = {},
                      .ref_logps = {-2.5f},
                      .truncated = true,
                      .advantage = 0.1},
                     {}};
  rollout.judged = {{.prompt = prompt,
                     .prompt_text = "What?",
                     .completion = std::string("\xff\0 not UTF-8", 12),
                     .rewards = {1.0 / 3, std::nullopt},
                     .finish_reason = "length"},
                    {}};
  rollout.stale = {static_cast<std::size_t>(prompt), 0};
  rollout.begun_ahead = {{.tokens = {9, 8}, .logps = {-1, -2}}, {}};
  rollout.generation_seconds = seconds;
  rollout.reference_seconds = 1 / seconds;
  return rollout;
}

TEST(RolloutMessage, AddsWhatWasSent) {
  Rollout both;
  append_message(to_message(rollout_of(5, 2)), both);
  append_message(to_message(rollout_of(6, 3)), both);
  ASSERT_EQ(both.samples.size(), 4u);
  EXPECT_EQ(both.samples[2].prompt, (std::vector<TokenId>{1, 2, 6}));
  EXPECT_EQ(both.samples[2].completion, (std::vector<TokenId>{3}));
  EXPECT_EQ(both.samples[2].logps, (std::vector<float>{-0.1f}));
  EXPECT_TRUE(both.samples[2].importance.empty());
  EXPECT_EQ(both.samples[2].ref_logps, (std::vector<float>{-2.5f}));
  EXPECT_TRUE(both.samples[2].truncated);
  EXPECT_FALSE(both.samples[3].truncated);
  EXPECT_EQ(both.samples[2].advantage, 0.1);
  ASSERT_EQ(both.judged.size(), 4u);
  EXPECT_EQ(both.judged[2].prompt, 6);
  EXPECT_EQ(both.judged[2].prompt_text, "What?");
  EXPECT_EQ(both.judged[2].completion, std::string("\xff\0 not UTF-8", 12));
  EXPECT_EQ(both.judged[2].rewards, (std::vector<std::optional<double>>{1.0 / 3, std::nullopt}));
  EXPECT_EQ(both.judged[2].finish_reason, "length");
  EXPECT_EQ(both.stale, (std::vector<std::size_t>{5, 0, 6, 0}));
  EXPECT_EQ(both.begun_ahead, (std::vector<DrawnTokens>{{{9, 8}, {-1, -2}}, {}, {{9, 8}, {-1, -2}}, {}}));
  EXPECT_EQ(both.generation_seconds, 3);  // the longest
  EXPECT_EQ(both.reference_seconds, 0.5);
}

TEST(RolloutMessage, EndsWhereItsValuesEnd) {
  const std::string whole = to_message(rollout_of(5, 2));
  Rollout unused;
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(append_message(whole.substr(0, size), unused), Defect) << size;
  EXPECT_THROW(append_message(whole + "x", unused), Defect);
}

}  // namespace
}  // namespace hone
