#include "train/schedule.h"
#include "core/json_value.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "support/paths.h"
#include "train/options.h"

namespace hone {
namespace {

// Learning rates of every type, compared with transformers' schedulers (tests/fixtures/train/make_schedules.py).
TEST(Schedule, AgreesWithTransformers) {
  const Json cases = read_json(test::fixture("train/schedules.json"));
  std::set<std::string> types;
  for (const Json& one : cases) {
    TrainingOptions options;
    Json keys = one;
    keys.erase("rates");
    OptionInput input;
    const OptionTable table(options);
    read_option_keys(table, parse_yaml(keys.dump(), "case"), "case", {}, input);
    const Schedule schedule = make_schedule(options, options.max_steps);
    const std::vector<double> rates = one.at("rates");
    for (std::size_t step = 0; step < rates.size(); ++step) {
      const double rate = schedule.rate(static_cast<std::int64_t>(step));
      EXPECT_LE(std::abs(rate - rates[step]), 1e-12 * std::abs(rates[step]) + 1e-12 * options.learning_rate)
          << keys.dump() << " step " << step << ": " << rate << " " << rates[step];
    }
    types.insert(one.at("lr_scheduler_type"));
  }
  EXPECT_EQ(types.size(), names_of<SchedulerType>().size());
}

TEST(Schedule, WarmupStepsWinAndRatiosRoundUp) {
  EXPECT_EQ(warmup_steps_of(100, 7, 0.5), 7);
  EXPECT_EQ(warmup_steps_of(100, 0, 0.03), 3);
  EXPECT_EQ(warmup_steps_of(101, 0, 0.03), 4);
  EXPECT_EQ(warmup_steps_of(100, 0, 0), 0);
}

std::string error_of(const ScheduleOptions& options) {
  try {
    (void)Schedule(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schedule, RefusesKeysThatDoNotFit) {
  const ScheduleOptions base{.learning_rate = 1e-3, .total_steps = 10, .warmup_steps = 4};
  ScheduleOptions options = base;
  options.type = SchedulerType::kCosineWithMinLr;
  EXPECT_EQ(error_of(options),
            "lr_scheduler_kwargs: cosine_with_min_lr needs exactly one of min_lr and min_lr_rate, saw neither (for "
            "example lr_scheduler_kwargs: {min_lr_rate: 0.1})");
  options.kwargs.min_lr = 1e-4;
  EXPECT_EQ(error_of(options), "no error");
  options.kwargs.min_lr_rate = 0.1;
  EXPECT_NE(error_of(options).find("saw both"), std::string::npos);
  options.type = SchedulerType::kLinear;
  EXPECT_EQ(error_of(options),
            "lr_scheduler_kwargs.min_lr: lr_scheduler_type linear does not read it (remove the key or choose another "
            "lr_scheduler_type)");
  options = base;
  options.type = SchedulerType::kWarmupStableDecay;
  EXPECT_NE(error_of(options).find("needs num_decay_steps"), std::string::npos);
  options.kwargs.num_decay_steps = 7;
  EXPECT_NE(error_of(options).find("warm-up 4 + num_decay_steps 7 is more than the run's 10 steps"), std::string::npos);
  options = base;
  options.type = SchedulerType::kPolynomial;
  options.kwargs.lr_end = 1e-3;
  EXPECT_NE(error_of(options).find("lr_end 0.001 is not below learning_rate 0.001"), std::string::npos);
}

}  // namespace
}  // namespace hone
