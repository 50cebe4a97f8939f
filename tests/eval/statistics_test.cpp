// Compares the statistics with numpy and math.comb (fixtures/eval/make_statistics.py) and with known values.
#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <string>

#include "core/json.h"
#include "core/json_value.h"
#include "support/paths.h"

namespace hone {
namespace {

TEST(Statistics, agree_with_numpy) {
  const Json cases = read_json(test::fixture("eval/statistics.json"));
  ASSERT_GE(cases.size(), 5u);
  for (const Json& entry : cases) {
    const auto scores = entry["scores"].get<std::vector<std::vector<double>>>();
    const Estimate average = average_score(scores);
    EXPECT_NEAR(average.value, entry["mean"].get<double>(), 1e-12);
    EXPECT_EQ(average.standard_error.has_value(), !entry["standard_error"].is_null());
    if (average.standard_error) {
      const double error = entry["standard_error"].get<double>();
      EXPECT_NEAR(*average.standard_error, error, 1e-12);
      EXPECT_NEAR(*average.low, std::max(0.0, average.value - 1.959963984540054 * error), 1e-12);
      EXPECT_NEAR(*average.high, std::min(1.0, average.value + 1.959963984540054 * error), 1e-12);
    }
    for (const auto& [k, expected] : entry["pass"].items()) {
      EXPECT_NEAR(pass_at_k(scores, std::stoll(k)).value, expected.get<double>(), 1e-12) << "pass@" << k;
    }
  }
}

TEST(Statistics, pass_at_k_of_known_values) {
  EXPECT_DOUBLE_EQ(pass_at_k(10, 0, 5), 0.0);
  EXPECT_DOUBLE_EQ(pass_at_k(10, 10, 1), 1.0);
  EXPECT_DOUBLE_EQ(pass_at_k(10, 6, 5), 1.0) << "there are only four wrong samples";
  EXPECT_NEAR(pass_at_k(4, 1, 2), 0.5, 1e-15);
  EXPECT_NEAR(pass_at_k(5, 2, 3), 1.0 - 1.0 / 10.0, 1e-15);
}

TEST(Statistics, samples_of_one_problem_do_not_count_as_independent) {
  const std::vector<std::vector<double>> few = {{1.0}, {0.0}, {1.0}};
  const std::vector<std::vector<double>> repeated = {{1.0, 1.0, 1.0}, {0.0, 0.0, 0.0}, {1.0, 1.0, 1.0}};
  EXPECT_DOUBLE_EQ(*average_score(few).standard_error, *average_score(repeated).standard_error);
}

TEST(Statistics, intervals_stay_within_scores) {
  const Estimate estimate = average_score(std::vector<std::vector<double>>{{1.0}, {1.0}, {0.0}});
  EXPECT_EQ(*estimate.high, 1.0);
  EXPECT_GT(*estimate.low, 0.0);
}

}  // namespace
}  // namespace hone
