// Tests that long comparisons end by counted work, so that their verdicts do not depend on the machine. Without these
// limits the tests take minutes or do not end.
#include "math_equality/work.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "core/json_value.h"
#include "math_equality/comparison.h"
#include "math_equality/workers.h"
#include "reward/registry.h"

namespace hone {
namespace {

// Returns "f(first) joint ... joint f(last)", forwards or backwards.
template <class Term>
std::string joined(int first, int last, const std::string& joint, const Term& term) {
  std::string text;
  for (int k = first;; k += first < last ? 1 : -1) {
    text += (text.empty() ? "" : joint) + term(k);
    if (k == last) return text;
  }
}

MathVerdict verdict(const std::string& gold, const std::string& answer) {
  return compare_here(reward_comparison("$" + gold + "$", "\\boxed{" + answer + "}")).verdict;
}

std::string nested_sum(int depth) {
  std::string text = "\\cos(x)";
  for (int i = 0; i < depth; ++i)
    text = "(\\sum_{" + std::string(1, static_cast<char>('i' + i)) + "=1}^{400} " + text + ")";
  return text;
}

// Equal numbers whose proof in an exact field would take long; enclosures decide.
TEST(Work, long_products_are_judged_by_enclosures) {
  const auto cosine = [](int k) { return "\\cos(" + std::to_string(k) + ")"; };
  const auto root = [](int k) { return "(1+\\sqrt{" + std::to_string(k * k + 1) + "})"; };
  const auto power = [](int k) { return "(1+e^{\\sqrt{" + std::to_string(k) + "}})"; };
  const auto log = [](int k) { return "\\ln(" + std::to_string(k + 1) + ")"; };
  const std::string times = " \\cdot ";
  EXPECT_EQ(verdict(joined(1, 40, times, cosine), joined(40, 1, times, cosine)), MathVerdict::kEqual);
  EXPECT_EQ(verdict(joined(1, 40, times, root), joined(40, 1, times, root)), MathVerdict::kEqual);
  EXPECT_EQ(verdict(joined(1, 40, times, power), joined(40, 1, times, power)), MathVerdict::kEqual);
  EXPECT_EQ(verdict(joined(1, 60, times, log), joined(60, 1, times, log)), MathVerdict::kEqual);
  EXPECT_EQ(verdict(joined(1, 40, times, cosine), joined(40, 2, times, cosine)), MathVerdict::kDifferent);
}

TEST(Work, what_a_comparison_may_take_is_bounded) {
  for (int depth = 2; depth <= 5; ++depth) {
    EXPECT_EQ(verdict("1", nested_sum(depth)), MathVerdict::kTooLong) << depth;
  }
  const auto interval = [](int k) {
    return "[\\sqrt{" + std::to_string(4 * k + 1) + "},\\sqrt{" + std::to_string(4 * k + 2) + "}]";
  };
  EXPECT_EQ(verdict(joined(1, 32, "\\cup", interval), joined(32, 1, "\\cup", interval)), MathVerdict::kTooLong);
  EXPECT_EQ(verdict(nested_sum(3), "1"), MathVerdict::kNoGold)
      << "a gold answer that exceeds the work limit does not parse";
}

// All pairs of elements of two sets share one limit, although a single pair costs very little.
TEST(Work, all_of_a_completions_comparisons_count_together) {
  const auto element = [](int k) { return "\\cos(" + std::to_string(k) + "x)\\cdot\\cos(" + std::to_string(k) + "y)"; };
  const std::string gold = "$" + joined(1, 12, ",", element) + "$";
  const std::string text = "\\boxed{" + joined(12, 1, ",", element) + "}";
  const auto read = read_gold(reward_comparison(gold, text));
  ASSERT_TRUE(read.has_value());
  const auto cost = [](const std::string& one, const std::string& other) {
    const WorkLimit limit(1'000'000'000);
    EXPECT_TRUE(equal(*parse_gold(one), *parse_answer(other)));
    return 1'000'000'000 - WorkLimit::left();
  };
  const std::int64_t single = cost("$" + element(3) + "$", "\\boxed{" + element(3) + "+0}");
  EXPECT_GT(cost(gold, text), 12 * single);
  EXPECT_EQ(cost(gold, text), cost(gold, text)) << "the count differs from run to run";
}

// Several rewards of one completion request the same comparison, but only the first one computes it. The only worker of
// the pool is stopped, so a second computation would have to replace it.
TEST(Work, what_was_too_much_is_not_tried_again) {
  MathWorkers workers({.workers = 1});
  const std::string slow = "\\boxed{" + nested_sum(3) + "}";
  const MathOutcome first = workers.compare(reward_comparison("42", slow));
  ASSERT_EQ(first.verdict, MathVerdict::kTooLong);
  const std::vector<pid_t> before = workers.processes();
  ASSERT_EQ(::kill(before.at(1), SIGSTOP), 0);
  const std::vector<MathComparison> again(50, reward_comparison("42", slow));
  for (const MathOutcome& outcome : workers.compare(again)) {
    EXPECT_EQ(outcome.verdict, MathVerdict::kTooLong);
    EXPECT_EQ(outcome.extracted, first.extracted);
  }
  EXPECT_EQ(workers.processes(), before);
  ASSERT_EQ(::kill(before.at(1), SIGCONT), 0);
  EXPECT_EQ(workers.compare(reward_comparison("42", slow, true)).verdict, MathVerdict::kTooLong)
      << "a different comparison";
  EXPECT_EQ(workers.compare(reward_comparison("42", "\\boxed{42}")).verdict, MathVerdict::kEqual);
}

TEST(Work, a_limit_ends_with_its_scope) {
  const std::int64_t before = WorkLimit::left();
  {
    const WorkLimit limit(10);
    WorkLimit::spend(10);
    EXPECT_THROW(WorkLimit::spend(1), BeyondWork);
  }
  EXPECT_EQ(WorkLimit::left(), before);
}

TEST(Work, a_completion_past_it_scores_nothing_and_harms_no_other) {
  const std::string slow = "\\boxed{" + nested_sum(3) + "}";
  const Json row = {{"solution", "42"}};
  std::vector<RewardInput> batch;
  for (int i = 0; i < 12; ++i)
    batch.push_back({.completion = i % 4 == 0 ? std::string_view("\\boxed{42}") : slow, .row = &row});
  RewardRegistry all;
  register_all_reward(all);
  const auto workers = shared_math_workers();
  (void)workers->compare(reward_comparison("42", "\\boxed{42}"));
  const RewardScores scores = all.make("accuracy", {}).score(batch);
  for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(scores[i], i % 4 == 0 ? 1.0 : 0.0) << i;
}

}  // namespace
}  // namespace hone
