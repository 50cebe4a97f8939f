// The balance of a mixture's experts: statistics of their load, the losses and the rule that equalize it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/expert_options.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

constexpr double kSpeed = 0.001;
constexpr std::int64_t kExperts = 8;  // of deepseek_v3's fixture
constexpr std::int64_t kTopK = 3;
const std::vector<std::string> kBiases{"layers.1.mlp.router_bias", "layers.2.mlp.router_bias"};

std::vector<float> numbers_of(const TensorStore& store, const std::string& name) {
  const std::vector<std::byte> bytes = store.download(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double metric_of(const MetricValues& values, std::string_view name) {
  for (const auto& [each, value] : values) {
    if (each == name) return value;
  }
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

// A step of training over these micro-batches.
struct BalanceStep {
  double loss = 0;
  double grad_norm = 0;
  MetricValues figures;
  std::vector<std::vector<float>> loads;   // before the update, by router
  std::vector<std::vector<float>> biases;  // after the update
  std::vector<float> router_gradient;
};

BalanceStep run_step(const FixtureModel& fixture, std::span<const HostBatch> batches, DType dtype = DType::kF32,
                     Recompute recompute = Recompute::kNone) {
  std::int64_t targets = 0;
  Capacity most;
  for (const HostBatch& batch : batches) {
    targets += batch.target_tokens;
    most = {std::max(most.tokens, batch.token_count()), std::max(most.sequences, batch.document_count())};
  }
  TensorStore weights = load_weights(*fixture.model, fixture.directory, dtype, test_device());
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*fixture.model, weights, arena, {});
  Executable executable(
      trace_training(*fixture.model, {.capacity = most, .compile = {.dtype = dtype, .recompute = recompute}}), arena,
      {.weights = &weights, .gradients = &optimizer.gradients()});
  LossLaunches launches(executable, batches.size());
  for (const HostBatch& batch : batches) launches.launch(batch, 1.0 / static_cast<double>(targets));
  const LossSums sums = launches.sums();
  BalanceStep step{.loss = sums.loss};
  sums.figures.append_to(step.figures, 1.0);
  const bool moves = optimizer.gradients().contains(kBiases[0]);
  for (const std::string& bias : kBiases) {
    if (moves) step.loads.push_back(numbers_of(optimizer.gradients(), bias));
  }
  step.router_gradient = numbers_of(optimizer.gradients(), "layers.1.mlp.router");
  step.grad_norm = optimizer.update(1e-3, 1.0).grad_norm;
  for (const std::string& bias : kBiases) {
    if (weights.contains(bias)) step.biases.push_back(numbers_of(weights, bias));
    if (moves) {
      EXPECT_EQ(numbers_of(optimizer.gradients(), bias), std::vector<float>(kExperts, 0.0f));
    }
  }
  return step;
}

FixtureModel deepseek(double speed, double alpha = 0) {
  FixtureModel fixture("deepseek_v3");
  fixture.model->prepare_training({.aux_loss_alpha = alpha, .bias_update_speed = speed});
  return fixture;
}

const std::vector<std::vector<TokenId>> kDocuments{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 8, 7, 6, 5}, {31, 14, 3, 100, 3, 17}};

std::vector<HostBatch> apart() {
  std::vector<HostBatch> batches;
  for (const auto& document : kDocuments) batches.push_back(batch_of(std::vector<std::vector<TokenId>>{document}));
  return batches;
}

TEST(ExpertBalance, BiasesMoveByTheLoadOfAllMicroBatches) {
  const FixtureModel fixture = deepseek(kSpeed);
  const BalanceStep together = run_step(fixture, std::vector{batch_of(kDocuments)});
  ASSERT_EQ(together.loads.size(), kBiases.size());
  for (std::size_t layer = 0; layer < kBiases.size(); ++layer) {
    const std::vector<float>& load = together.loads[layer];
    EXPECT_EQ(std::accumulate(load.begin(), load.end(), 0.0f), static_cast<float>(kTopK * 19));
    EXPECT_GT(std::ranges::max(load), std::ranges::min(load));
    const std::vector<float> before = numbers_of(fixture.weights, kBiases[layer]);
    for (std::size_t e = 0; e < load.size(); ++e) {
      const float mean = static_cast<float>(kTopK * 19) / static_cast<float>(kExperts);
      const auto speed = static_cast<float>(kSpeed);
      const float expected = load[e] < mean ? before[e] + speed : load[e] > mean ? before[e] - speed : before[e];
      EXPECT_EQ(together.biases[layer][e], expected) << kBiases[layer] << " of expert " << e;
    }
  }
  // Splits and recomputation change no bit of loads and biases.
  const std::vector<HostBatch> split = apart();
  for (const BalanceStep& other :
       {run_step(fixture, split), run_step(fixture, split, DType::kF32, Recompute::kLayers)}) {
    EXPECT_EQ(other.loads, together.loads);
    EXPECT_EQ(other.biases, together.biases);
  }
  // The loads do not count as gradients.
  const BalanceStep constant = run_step(deepseek(0), std::vector{batch_of(kDocuments)});
  EXPECT_TRUE(constant.loads.empty());
  EXPECT_EQ(constant.grad_norm, together.grad_norm);
  EXPECT_EQ(constant.loss, together.loss);
  EXPECT_EQ(constant.biases[0], numbers_of(fixture.weights, kBiases[0]));
}

TEST(ExpertBalance, BiasesKeepF32InAModelOfBfloat16) {
  const FixtureModel fixture = deepseek(kSpeed);
  const BalanceStep step = run_step(fixture, apart(), DType::kBf16);
  EXPECT_EQ(std::accumulate(step.loads[0].begin(), step.loads[0].end(), 0.0f), static_cast<float>(kTopK * 19));
  EXPECT_NE(step.biases[0], numbers_of(fixture.weights, kBiases[0]));
}

TEST(ExpertBalance, LoadsAreLoggedAsCoefficientsOfVariation) {
  const FixtureModel fixture = deepseek(kSpeed);
  const BalanceStep step = run_step(fixture, apart());
  double mean = 0;
  double most = 0;
  for (std::size_t layer = 0; layer < kBiases.size(); ++layer) {
    const std::vector<float>& load = step.loads[layer];
    const double average = static_cast<double>(kTopK * 19) / static_cast<double>(kExperts);
    double squares = 0;
    for (const float each : load)
      squares += (static_cast<double>(each) - average) * (static_cast<double>(each) - average);
    const double variation = std::sqrt(squares / static_cast<double>(kExperts)) / average;
    EXPECT_NEAR(metric_of(step.figures, text_of("expert_load_cv/layers.", layer + 1)), variation, 1e-12);
    mean += variation / static_cast<double>(kBiases.size());
    most = std::max(most, static_cast<double>(std::ranges::max(load)) / average);
  }
  EXPECT_NEAR(metric_of(step.figures, "expert_load_cv"), mean, 1e-12);
  EXPECT_NEAR(metric_of(step.figures, "expert_load_max"), most, 1e-12);
}

TEST(ExpertBalance, TheSequenceWiseLossDoesNotDependOnTheSplit) {
  constexpr double kAlpha = 0.5;
  const FixtureModel balanced = deepseek(0, kAlpha);
  const BalanceStep together = run_step(balanced, std::vector{batch_of(kDocuments)});
  const BalanceStep split = run_step(balanced, apart());
  const BalanceStep recomputed = run_step(balanced, apart(), DType::kF32, Recompute::kLayers);
  const BalanceStep plain = run_step(deepseek(0), apart());
  const double loss = metric_of(together.figures, "aux_loss");
  EXPECT_GE(loss, 2 * 0.99);  // each of two layers has at least about 1
  EXPECT_NEAR(together.loss, plain.loss + kAlpha * loss, 1e-5);
  EXPECT_NEAR(split.loss, together.loss, 1e-5);
  EXPECT_NEAR(metric_of(split.figures, "aux_loss"), loss, 1e-6);
  EXPECT_LT(relative_difference(split.router_gradient, together.router_gradient), 1e-5);
  EXPECT_EQ(recomputed.router_gradient, split.router_gradient);
  EXPECT_GT(relative_difference(plain.router_gradient, together.router_gradient), 0.01);
}

class RouterLoss : public testing::TestWithParam<const char*> {};

// tests/fixtures/models/make_router_losses.py computed the reference.
TEST_P(RouterLoss, IsThatOfTransformers) {
  constexpr double kCoefficient = 0.5;
  FixtureModel fixture(GetParam());
  fixture.model->prepare_training({.output_router_logits = true, .router_aux_loss_coef = kCoefficient});
  const SafetensorsFile reference(hone::test::fixture("models") / GetParam() / "router_loss.safetensors");
  const auto ids = read_values<std::int64_t>(reference.at("input_ids"));
  const auto half = static_cast<std::ptrdiff_t>(ids.size() / 2);
  const HostBatch batch =
      batch_of(std::vector<std::vector<TokenId>>{{ids.begin(), ids.begin() + half}, {ids.begin() + half, ids.end()}});
  auto arena = std::make_shared<Arena>(test_device());
  const Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
  Executable executable(trace_training(*fixture.model, {.capacity = capacity_of(batch)}), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
  MetricValues figures;
  sums.figures.append_to(figures, 1.0);
  const auto expected = [&](const std::string& name) { return read_values<float>(reference.at(name)); };
  const auto aux_loss = static_cast<double>(expected("aux_loss")[0]);
  EXPECT_NEAR(metric_of(figures, "aux_loss"), aux_loss, 1e-4 * aux_loss);
  EXPECT_NEAR(sums.loss, static_cast<double>(expected("loss")[0]), 1e-4 * sums.loss);
  std::size_t compared = 0;
  for (const WeightSpec& spec : fixture.model->weights()) {
    const std::string name = "gradient." + spec.parts[0].name;
    if (reference.find(name) == nullptr) continue;
    EXPECT_LE(relative_difference(numbers_of(optimizer.gradients(), spec.name), expected(name)), 1e-3) << name;
    ++compared;
  }
  EXPECT_EQ(compared, reference.tensors().size() - 3);
}

INSTANTIATE_TEST_SUITE_P(Families, RouterLoss, testing::Values("mixtral", "qwen3_moe"));

std::string preparing(const char* name, const ExpertOptions& options, bool use_peft = false) {
  try {
    prepare_experts(*FixtureModel(name).model, options, use_peft);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ExpertBalance, KeysAreRefusedByModelsWithoutAUse) {
  using testing::HasSubstr;
  EXPECT_EQ(preparing("qwen3", {}), "no error");
  EXPECT_EQ(preparing("qwen3", {.output_router_logits = false, .bias_update_speed = 0}), "no error");
  EXPECT_THAT(preparing("qwen3", {.output_router_logits = true}), HasSubstr("output_router_logits: is true, but the"));
  EXPECT_THAT(preparing("gpt2", {.aux_loss_alpha = 0.1}), HasSubstr("aux_loss_alpha: is 0.1, but the model has no"));
  EXPECT_THAT(preparing("llama", {.bias_update_speed = 0.01}),
              HasSubstr("bias_update_speed: is 0.01, but the model's"));
  EXPECT_EQ(preparing("mixtral", {.output_router_logits = true, .router_aux_loss_coef = 0.02}), "no error");
  EXPECT_THAT(preparing("mixtral", {.router_aux_loss_coef = 0.02}), HasSubstr("set output_router_logits: true"));
  EXPECT_THAT(preparing("qwen3_moe", {.aux_loss_alpha = 0.1}), HasSubstr("aux_loss_alpha"));
  EXPECT_THAT(preparing("qwen3_moe", {.bias_update_speed = 0.1}), HasSubstr("bias_update_speed"));
  EXPECT_EQ(preparing("deepseek_v2", {.aux_loss_alpha = 0.1}), "no error");
  EXPECT_THAT(preparing("deepseek_v2", {.bias_update_speed = 0.1}), HasSubstr("e_score_correction_bias"));
  EXPECT_THAT(preparing("deepseek_v3", {.output_router_logits = true}), HasSubstr("output_router_logits"));
  EXPECT_EQ(preparing("deepseek_v3", {.aux_loss_alpha = 0.1, .bias_update_speed = 0.1}), "no error");
  EXPECT_THAT(preparing("deepseek_v3", {.bias_update_speed = 0.1}, true), HasSubstr("use_peft leaves all biases"));
}

TEST(ExpertBalance, OnlyAnUnsetSpeedHasADefault) {
  const auto speed_of = [](const char* name, const ExpertOptions& options, bool use_peft) {
    const FixtureModel fixture(name);
    prepare_experts(*fixture.model, options, use_peft, kPretrainBiasSpeed);
    double speed = 0;
    for (const WeightSpec& spec : fixture.model->weights()) speed = std::max(speed, spec.update_speed);
    return speed;
  };
  EXPECT_EQ(speed_of("deepseek_v3", {}, false), 0.001);
  EXPECT_EQ(speed_of("deepseek_v3", {}, true), 0);
  EXPECT_EQ(speed_of("deepseek_v3", {.bias_update_speed = 0}, false), 0);
  EXPECT_EQ(speed_of("deepseek_v3", {.bias_update_speed = 0.5}, false), 0.5);
  EXPECT_EQ(speed_of("mixtral", {}, false), 0);
}

}  // namespace
}  // namespace hone::test
