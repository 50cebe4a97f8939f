#include "ops/sgd/sgd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/json.h"
#include "core/json_value.h"
#include "ops/update_run.h"
#include "support/paths.h"

namespace hone::test {
namespace {

SgdAttributes sgd_attributes(const Json& run) {
  return {.momentum = run.value("momentum_share", 0.0),
          .dampening = run.value("dampening", 0.0),
          .nesterov = run.value("nesterov", false),
          .weight_decay = run.value("weight_decay", 0.0)};
}

Shape shape_of(const Json& run) {
  return {run.at("shape").at(0).get<std::int64_t>(), run.at("shape").at(1).get<std::int64_t>()};
}

UpdateRun optimizer(const UpdateTypes& types, const SgdAttributes& attributes) {
  return {types, [&](const UpdateRun::Tensors& t, const AdamwStep& step) {
            sgd({t.weight, t.gradient, t.momentum, t.master}, step, attributes);
          }};
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * std::max(1.0f, std::abs(expected[i]))) << what << " at " << i;
  }
}

// Compares an f32 weight, and a bf16 weight with a master, with torch.
TEST(Sgd, FollowsTorch) {
  const Json fixture_json = read_json(fixture("ops/sgd.json"));
  for (const Json& run : fixture_json.at("cases")) {
    const SgdAttributes attributes = sgd_attributes(run);
    const bool momentum = attributes.momentum != 0;
    UpdateRun full = optimizer({.weight = {DType::kF32, shape_of(run)}, .momentum = momentum}, attributes);
    UpdateRun mixed =
        optimizer({.weight = {DType::kBf16, shape_of(run)}, .momentum = momentum, .master = true}, attributes);
    const auto start = run.at("start").get<std::vector<float>>();
    full.set_weight(start);
    mixed.set_weight(start);
    std::int64_t number = 0;
    for (const Json& step : run.at("steps")) {
      ++number;
      for (UpdateRun* each : {&full, &mixed}) {
        each->run(step.at("gradient").get<std::vector<float>>(), step.at("learning_rate").get<double>(),
                  fixture_json.at("max_grad_norm").get<double>(), number);
        EXPECT_EQ(each->gradient(), std::vector<float>(start.size(), 0.0f));
      }
      const auto expected = step.at("weight").get<std::vector<float>>();
      expect_near(full.weight(), expected, 1e-6, "weight");
      expect_near(mixed.master(), expected, 1e-6, "master");
      expect_near(mixed.weight(), expected, 4e-3, "rounded weight");
    }
    if (momentum) expect_near(full.momentum(), run.at("momentum").get<std::vector<float>>(), 2e-6, "momentum");
  }
}

// Steps of a quarter of the distance to the next bf16 number add up, and a step that is not finite is skipped.
TEST(Sgd, RoundsStochasticallyWithoutAMaster) {
  const std::size_t elements = 20000;
  UpdateRun run = optimizer({.weight = {DType::kBf16, {200, 100}}, .gradient = DType::kBf16}, {.seed = 9, .stream = 3});
  run.set_weight(std::vector<float>(elements, 1.0f));
  run.run(std::vector<float>(elements, 1.0f), 1.0f / 1024.0f, 0, 1);  // bf16 numbers below 1 are 1/256 apart
  const std::vector<float> weights = run.weight();
  double sum = 0;
  for (const float weight : weights) sum += weight;
  EXPECT_NEAR(sum / static_cast<double>(elements), 1.0 - 1.0 / 1024.0, 1e-4);
  run.run(std::vector<float>(elements, std::nanf("")), 1.0, 1, 2);
  EXPECT_EQ(run.weight(), weights);
  EXPECT_EQ(run.gradient(), std::vector<float>(elements, 0.0f));
}

}  // namespace
}  // namespace hone::test
