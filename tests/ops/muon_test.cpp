#include "ops/muon/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "ops/update_run.h"
#include "support/paths.h"

namespace hone::test {
namespace {

MuonAttributes attributes_of(const Json& run) {
  const auto rows = run.at("shape").at(0).get<std::int64_t>();
  const auto columns = run.at("shape").at(1).get<std::int64_t>();
  const Json& rule = run.at("adjust_lr_fn");
  const bool matched = rule.is_string() && rule == "match_rms_adamw";
  return {.rows = {0, rows},
          .momentum = run.at("momentum_share").get<double>(),
          .nesterov = run.at("nesterov").get<bool>(),
          .steps = run.at("ns_steps").get<std::int64_t>(),
          .apply = {.rate_scale = muon_scale(matched ? MuonScale::kMatchRmsAdamw : MuonScale::kOriginal, rows, columns),
                    .weight_decay = run.at("weight_decay").get<double>()}};
}

UpdateRun optimizer(const UpdateTypes& types, const MuonAttributes& attributes) {
  return {types, [&](const UpdateRun::Tensors& t, const AdamwStep& step) {
            muon({t.weight, t.gradient, t.momentum, t.master}, step, attributes);
          }};
}

// Relative error |actual - expected| / |expected - start|.
double error_of(const std::vector<float>& actual, const std::vector<float>& expected, const std::vector<float>& start) {
  double error = 0;
  double move = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    move += std::pow(static_cast<double>(expected[i]) - start[i], 2);
  }
  return std::sqrt(error / move);
}

// Compares f32 weights with torch patched to iterate in f32, and masters of bf16 weights with unpatched torch, which
// iterates in bf16. The iterations amplify bf16's rounding, the more the smaller a matrix is, hence the tolerance.
TEST(Muon, FollowsTorch) {
  const Json all = read_json(fixture("ops/muon.json"));
  for (const Json& run : all.at("cases")) {
    const bool narrow = run.at("precision") == "bf16";
    const Shape shape{run.at("shape").at(0).get<std::int64_t>(), run.at("shape").at(1).get<std::int64_t>()};
    UpdateRun update =
        optimizer({.weight = {narrow ? DType::kBf16 : DType::kF32, shape}, .momentum = true, .master = narrow},
                  attributes_of(run));
    const auto start = run.at("start").get<std::vector<float>>();
    update.set_weight(start);
    std::int64_t number = 0;
    for (const Json& step : run.at("steps")) {
      update.run(step.at("gradient").get<std::vector<float>>(), step.at("learning_rate").get<double>(),
                 all.at("max_grad_norm").get<double>(), ++number);
      const auto expected = step.at("weight").get<std::vector<float>>();
      EXPECT_LT(error_of(narrow ? update.master() : update.weight(), expected, start), narrow ? 0.06 : 1e-4)
          << run.at("precision") << " " << run.at("shape") << " step " << number;
      EXPECT_EQ(update.gradient(), std::vector<float>(start.size(), 0.0f));
    }
    const auto momentum = run.at("momentum").get<std::vector<float>>();
    EXPECT_LT(error_of(update.momentum(), momentum, std::vector<float>(momentum.size())), 1e-6);
  }
}

std::vector<float> normal_numbers(std::size_t count, std::string_view use) {
  const RandomStream random(1, use);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = random.normal(i);
  return values;
}

// Rows of a block that form a matrix move as if they were the whole block; the others keep weights and gradients.
TEST(Muon, MovesSomeRowsAlone) {
  const std::vector<float> weight = normal_numbers(7 * 9, "weight");
  const std::vector<float> gradient = normal_numbers(7 * 9, "gradient");
  UpdateRun block = optimizer({.weight = {DType::kF32, {7, 9}}, .momentum = true}, {.rows = {2, 3}});
  UpdateRun alone = optimizer({.weight = {DType::kF32, {3, 9}}, .momentum = true}, {.rows = {0, 3}});
  const auto rows = [](const std::vector<float>& values) {
    return std::vector<float>(values.begin() + 18, values.begin() + 45);
  };
  block.set_weight(weight);
  alone.set_weight(rows(weight));
  block.run(gradient, 0.1, 0, 1);
  alone.run(rows(gradient), 0.1, 0, 1);
  EXPECT_EQ(rows(block.weight()), alone.weight());
  EXPECT_NE(rows(weight), alone.weight());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    if (i >= 18 && i < 45) continue;
    EXPECT_EQ(block.weight()[i], weight[i]);
    EXPECT_EQ(block.gradient()[i], gradient[i]);
  }
}

// Newton-Schulz iterations bring all singular values near 1: a matrix of rank 1 keeps its rank and gets a norm near 1.
TEST(Muon, MakesOrthogonal) {
  std::vector<float> gradient(40);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>((1.0 + static_cast<double>(i / 8)) * (static_cast<double>(i % 8) - 3.5));
  }
  UpdateRun run = optimizer({.weight = {DType::kF32, {5, 8}}, .momentum = true}, {.rows = {0, 5}});
  run.set_weight(std::vector<float>(40, 0.0f));
  run.run(gradient, 1.0, 0, 1);
  const std::vector<float> weight = run.weight();
  double norm = 0;
  double along = 0;
  double length = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    norm += static_cast<double>(weight[i]) * weight[i];
    along -= static_cast<double>(weight[i]) * gradient[i];
    length += static_cast<double>(gradient[i]) * gradient[i];
  }
  EXPECT_NEAR(along / std::sqrt(norm * length), 1.0, 1e-5);
  EXPECT_GT(std::sqrt(norm), 0.6);
  EXPECT_LT(std::sqrt(norm), 1.3);
}

TEST(Muon, AStepThatIsNotFiniteChangesNothing) {
  UpdateRun run = optimizer(
      {.weight = {DType::kBf16, {4, 6}}, .gradient = DType::kBf16, .momentum = true, .master = true}, {.rows = {0, 4}});
  run.set_weight(normal_numbers(24, "weight"));
  run.run(normal_numbers(24, "gradient"), 0.1, 1, 1);
  const std::vector<float> master = run.master();
  const std::vector<float> momentum = run.momentum();
  std::vector<float> broken(24, 1.0f);
  broken[3] = std::nanf("");
  run.run(broken, 0.1, 1, 2);
  EXPECT_EQ(run.master(), master);
  EXPECT_EQ(run.momentum(), momentum);
  EXPECT_EQ(run.gradient(), std::vector<float>(24, 0.0f));
}

// A bf16 weight without a master is rounded so that its expectation is the unrounded number.
TEST(Muon, RoundsStochasticallyWithoutAMaster) {
  const std::size_t elements = 64 * 128;
  UpdateRun narrow = optimizer({.weight = {DType::kBf16, {64, 128}}, .momentum = true}, {.rows = {0, 64}});
  UpdateRun full =
      optimizer({.weight = {DType::kBf16, {64, 128}}, .momentum = true, .master = true}, {.rows = {0, 64}});
  const std::vector<float> gradient = normal_numbers(elements, "gradient");
  for (UpdateRun* each : {&narrow, &full}) {
    each->set_weight(std::vector<float>(elements, 1.0f));
    each->run(gradient, 1e-2, 0, 1);
  }
  const auto mean_of = [](const std::vector<float>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  EXPECT_NE(narrow.weight(), full.weight());
  EXPECT_NEAR(mean_of(narrow.weight()), mean_of(full.master()), 1e-4);
}

}  // namespace
}  // namespace hone::test
