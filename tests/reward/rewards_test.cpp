// Compares every text reward, built through the registry, with open-r1's formulas
// (fixtures/reward/make_text_rewards.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "reward/registry.h"
#include "reward/reward_flags.h"
#include "support/paths.h"

namespace hone {
namespace {

RewardRegistry registry() {
  RewardRegistry all;
  register_all_reward(all);
  return all;
}

std::optional<double> reward_score(const std::string& name, const std::string& text, const Json& row = Json::object(),
                                   const RewardOptions& options = {}) {
  const RewardInput input{.completion = text, .row = &row};
  const RewardScores scores = registry().make(name, options).score({&input, 1});
  EXPECT_EQ(scores.size(), 1u);
  return scores.at(0);
}

const std::string kGood = "<think>\nx\n</think>\n<answer>\n\\boxed{6}\n</answer>";

TEST(RewardRegistry, holds_every_folder) {
  std::size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "src/reward")) {
    const std::string name = entry.path().filename().string();
    folders += entry.is_directory() && std::filesystem::exists(entry.path() / (name + ".cpp")) ? 1 : 0;
  }
  EXPECT_GE(folders, 8u);
  EXPECT_EQ(registry().names().size(), folders);
}

TEST(RewardRegistry, names_metrics_as_trl_does) {
  EXPECT_EQ(registry().make("accuracy", {}).metric_name, "accuracy_reward");
  EXPECT_EQ(registry().make("length", {}).metric_name, "len_reward");
  EXPECT_EQ(registry().make("cosine", {}).metric_name, "cosine_scaled_reward");
}

TEST(RewardRegistry, suggests_a_known_name) {
  try {
    (void)registry().make("acuracy", {});
    FAIL() << "an unknown reward was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'accuracy'"), std::string::npos) << error.what();
  }
}

TEST(Rewards, text_rewards_agree_with_open_r1) {
  const Json fixture = read_json(test::fixture("reward/text_rewards.json"));
  std::size_t formatted = 0;
  for (const Json& row : fixture["texts"]) {
    const auto text = row["text"].get<std::string>();
    for (const char* name : {"format", "tag_count", "reasoning_steps", "repetition_penalty"}) {
      EXPECT_DOUBLE_EQ(reward_score(name, text).value(), row[name].get<double>())
          << name << " of " << row["text"].dump();
    }
    formatted += row["format"].get<double>() == 1.0 ? 1 : 0;
  }
  EXPECT_GE(formatted, 20u);
}

TEST(Rewards, length_and_cosine_agree_with_open_r1) {
  const Json fixture = read_json(test::fixture("reward/text_rewards.json"));
  const Json gold = {{"solution", "6"}};
  std::vector<std::string> texts;
  for (const Json& row : fixture["judged"]) texts.push_back(row["text"].get<std::string>());
  std::vector<RewardInput> batch;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    batch.push_back({.completion = texts[i], .row = &gold, .group = fixture["judged"][i]["group"].get<std::int64_t>()});
  }
  const RewardScores by_group = registry().make("length", {}).score(batch);
  const RewardScores by_call = registry().make("length", test::with_keys({"--length_scope=call"})).score(batch);
  const RewardScores cosine = registry().make("cosine", {}).score(batch);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Json& row = fixture["judged"][i];
    EXPECT_NEAR(by_group[i].value(), row["length"].get<double>(), 1e-12) << i;
    EXPECT_NEAR(by_call[i].value(), row["length_call"].get<double>(), 1e-12) << i;
    EXPECT_NEAR(cosine[i].value(), row["cosine"].get<double>(), 1e-12) << i;
  }
}

TEST(Rewards, a_gold_that_does_not_parse_counts_as_right_for_lengths) {
  const Json unparsed = {{"solution", "no number"}};
  EXPECT_EQ(reward_score("cosine", "anything", unparsed), 1.0);
  const std::vector<RewardInput> batch = {{.completion = "ab", .row = &unparsed},
                                          {.completion = "abcd", .row = &unparsed}};
  const RewardScores scores = registry().make("length", {}).score(batch);
  EXPECT_EQ(scores[0], 0.5);
  EXPECT_EQ(scores[1], -0.5);
}

TEST(Rewards, soft_overlong_punishment_counts_tokens) {
  const Json fixture = read_json(test::fixture("reward/text_rewards.json"));
  for (const Json& row : fixture["tokens"]) {
    const RewardInput input{.completion = "x", .token_count = row["tokens"].get<std::int64_t>()};
    const auto scores = registry().make("soft_overlong_punishment", {}).score({&input, 1});
    EXPECT_DOUBLE_EQ(scores[0].value(), row["soft_overlong_punishment"].get<double>()) << row.dump();
  }
}

TEST(Accuracy, reads_the_gold_from_solution_then_answer) {
  EXPECT_EQ(reward_score("accuracy", kGood, {{"solution", "6"}}), 1.0);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"answer", "6"}}), 1.0);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"answer", 6}}), 1.0);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"solution", "7"}, {"answer", "6"}}), 0.0);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"solution", nullptr}, {"answer", "6"}}), 1.0);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"answer", "The answer is <<2*5=10>>10, or $10.\n#### 6"}}), 1.0);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"answer", "2 #### 7 is 6"}}), 1.0)
      << "#### must be at the beginning of a line";
}

TEST(Accuracy, has_no_opinion_where_the_gold_does_not_parse) {
  EXPECT_EQ(reward_score("accuracy", kGood, {{"solution", "no number"}}), std::nullopt);
  EXPECT_EQ(reward_score("accuracy", kGood, {{"solution", ""}}), std::nullopt);
}

TEST(Accuracy, asks_for_a_gold) {
  EXPECT_THROW((void)reward_score("accuracy", kGood, {{"problem", "1+1"}}), Error);
  EXPECT_THROW((void)reward_score("accuracy", kGood, {{"solution", {1, 2}}}), Error);
}

TEST(Accuracy, counts_thoughts_unless_told_to_strip_them) {
  const std::string text = "<think>\nIt is \\boxed{6}.\n</think>\nDone.";
  EXPECT_EQ(reward_score("accuracy", text, {{"solution", "6"}}), 1.0);
  EXPECT_EQ(reward_score("accuracy", text, {{"solution", "6"}}, test::with_keys({"--strip_thoughts"})), 0.0);
  EXPECT_EQ(reward_score("accuracy", text + " \\boxed{6}", {{"solution", "6"}}, test::with_keys({"--strip_thoughts"})),
            1.0);
}

TEST(Format, counts_a_prefilled_tag_as_present) {
  const std::string rest = kGood.substr(std::string("<think>\n").size());
  EXPECT_EQ(reward_score("format", rest), 0.0);
  EXPECT_EQ(reward_score("tag_count", rest), 0.75);
  const RewardOptions prefilled{.think_prefilled = true};
  EXPECT_EQ(reward_score("format", rest, Json::object(), prefilled), 1.0);
  EXPECT_EQ(reward_score("tag_count", rest, Json::object(), prefilled), 1.0);
  EXPECT_EQ(reward_score("format", kGood, Json::object(), prefilled), 1.0) << "the caller prepended the prefill";
  EXPECT_EQ(reward_score("tag_count", kGood, Json::object(), prefilled), 1.0);
  EXPECT_EQ(reward_score("tag_count", "a <think>\nb", Json::object(), prefilled), 0.0) << "opened twice";
}

TEST(Rewards, refuse_options_that_make_no_sense) {
  EXPECT_THROW((void)registry().make("repetition_penalty", test::with_keys({"--repetition_max_penalty=0.5"})), Error);
  EXPECT_THROW((void)registry().make("repetition_penalty", test::with_keys({"--repetition_n_grams=0"})), Error);
  EXPECT_THROW((void)registry().make("cosine", test::with_keys({"--cosine_max_len=0"})), Error);
  EXPECT_THROW((void)registry().make("soft_overlong_punishment",
                                     test::with_keys({"--max_completion_len=10", "--soft_punish_cache=11"})),
               Error);
}

}  // namespace
}  // namespace hone
