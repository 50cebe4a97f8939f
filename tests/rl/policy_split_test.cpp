// Gradients of a whole model under the loss of GRPO: the same samples in several splits into micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "rl/policy_batch.h"
#include "rl/policy_program.h"
#include "support/device.h"
#include "support/models.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

constexpr std::size_t kSamples = 8;

std::int64_t tokens_of(std::span<const PolicySample> samples) {
  std::size_t tokens = 0;
  for (const PolicySample& sample : samples) tokens += sample.prompt.size() + sample.completion.size();
  return static_cast<std::int64_t>(tokens);
}

// Returns samples of random tokens whose old and reference log-probabilities differ slightly from the policy's.
std::vector<PolicySample> make_samples(const FixtureModel& fixture) {
  const auto vocab = static_cast<std::uint64_t>(fixture.model->shape().vocab_size);
  const RandomStream random(11, "samples");
  std::vector<PolicySample> samples(kSamples);
  std::uint64_t at = 0;
  for (std::size_t s = 0; s < kSamples; ++s) {
    PolicySample& sample = samples[s];
    for (std::size_t i = 0; i < 1 + 3 * s % 7; ++i) {
      sample.prompt.push_back(static_cast<TokenId>(random.below(at++, vocab)));
    }
    for (std::size_t i = 0; i < 2 + 5 * s % 11; ++i) {
      sample.completion.push_back(static_cast<TokenId>(random.below(at++, vocab)));
    }
    sample.logps.assign(sample.completion.size(), 0.0f);
    sample.truncated = s % 3 == 1;
    sample.advantage = static_cast<double>(random.normal(at++));
  }
  const PolicyBatch batch = make_policy_batch(samples);
  Executable policy(trace_target_logps(*fixture.model, 0.8, {.capacity = {tokens_of(samples), kSamples}}),
                    std::make_shared<Arena>(test_device()), {.weights = &fixture.weights});
  feed(policy, batch.batch);
  policy.set<std::int32_t>("targets", batch.batch.targets);
  policy.run();
  std::vector<float> logps(batch.batch.tokens.size());
  policy.get<float>("logp", logps);
  const std::vector<std::vector<float>> policy_logps = completion_values(batch, samples, logps);
  for (std::size_t s = 0; s < kSamples; ++s) {
    for (std::size_t i = 0; i < samples[s].completion.size(); ++i) {
      samples[s].logps[i] = policy_logps[s][i] + 0.3f * random.normal(at++);
      samples[s].ref_logps.push_back(policy_logps[s][i] + 0.5f * random.normal(at++));
    }
  }
  return samples;
}

// Returns the loss followed by all gradients.
std::vector<float> run_split(FixtureModel& fixture, std::span<const PolicySample> samples, std::size_t micro_batch,
                             GrpoLoss loss, bool masked) {
  std::int64_t capacity = 0;
  for (std::size_t first = 0; first < samples.size(); first += micro_batch) {
    capacity = std::max(capacity, tokens_of(samples.subspan(first, micro_batch)));
  }
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
  Executable policy(trace_policy(*fixture.model, {.temperature = 0.8, .beta = 0.04, .old_logps = true},
                                 {.capacity = {capacity, static_cast<std::int64_t>(micro_batch)}}),
                    arena, {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  LossNormaliser normaliser{.loss = loss, .max_completion_length = 12, .mask_truncated = masked};
  normaliser.count(samples);
  std::vector<float> values{0.0f};
  for (std::size_t first = 0; first < samples.size(); first += micro_batch) {
    PolicyBatch batch = make_policy_batch(samples.subspan(first, micro_batch));
    set_loss_weights(batch, samples.subspan(first, micro_batch), normaliser);
    feed(policy, batch.batch);
    policy.set<std::int32_t>("targets", batch.batch.targets);
    policy.set<float>("loss_weights", batch.weights);
    policy.set<float>("advantages", batch.advantages);
    policy.set<float>("old_logp", batch.old_logps);
    policy.set<float>("ref_logp", batch.ref_logps);
    policy.run();
    float part = 0;
    policy.get<float>("loss", {&part, 1});
    values[0] += part;
  }
  for (const NamedType& tensor : optimizer.gradients().tensors()) {
    const std::vector<std::byte> bytes = optimizer.gradients().download(tensor.name);
    const auto* begin = reinterpret_cast<const float*>(bytes.data());
    values.insert(values.end(), begin, begin + bytes.size() / sizeof(float));
  }
  return values;
}

TEST(PolicySplit, MicroBatchesChangeLossAndGradientByRoundingAlone) {
  for (const char* name : {"qwen3", "llama_tied"}) {
    FixtureModel fixture(name);
    const std::vector<PolicySample> samples = make_samples(fixture);
    std::vector<float> losses;
    for (const GrpoLoss loss : {GrpoLoss::kGrpo, GrpoLoss::kBnpo, GrpoLoss::kDrGrpo}) {
      for (const bool masked : {false, true}) {
        const std::vector<float> whole = run_split(fixture, samples, 8, loss, masked);
        ASSERT_GT(std::abs(whole[0]), 1e-3f);
        EXPECT_EQ(std::count(losses.begin(), losses.end(), whole[0]), 0) << "another loss gave the same";
        losses.push_back(whole[0]);
        for (const std::size_t micro_batch : {1, 2, 4}) {
          const std::vector<float> split = run_split(fixture, samples, micro_batch, loss, masked);
          EXPECT_NEAR(split[0], whole[0], 2e-6 * std::abs(whole[0]));
          EXPECT_LT(relative_difference(split, whole), 2e-6) << name << ", micro-batches of " << micro_batch;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hone::test
