// Tests of the capacities of an engine's programs: each step has one that holds it, with little room left.
#include "engine/step_capacity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.h"

namespace hone::test {
namespace {

struct RandomStep {
  std::int64_t tokens = 0;
  std::int64_t requests = 0;
  std::int64_t samples = 0;
  std::int64_t longest = 0;  // tokens of one request
};

// A step as Scheduler plans it: tokens that are drawn, proposed ones, then prompts, some of them sampled.
RandomStep random_step(const RandomStream& random, std::uint64_t& at, const EngineOptions& options) {
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(at++, static_cast<std::uint64_t>(bound)));
  };
  RandomStep step;
  std::int64_t prompt_samples = options.max_prompt_samples;
  const std::int64_t requests = 1 + below(options.max_num_seqs);
  const bool has_prompts = below(2) == 0;
  while (step.requests < requests && step.tokens < options.max_batch_tokens) {
    const std::int64_t left = options.max_batch_tokens - step.tokens;
    std::int64_t tokens = std::min(left, 1 + below(1 + options.num_speculative_tokens));
    std::int64_t samples = tokens;
    if (has_prompts && below(4) == 0) {
      tokens = 1 + below(left);
      const std::int64_t sampled = std::min({tokens - 1, prompt_samples, below(left)});
      prompt_samples -= sampled;
      samples = sampled + below(2);
    }
    step.tokens += tokens;
    step.samples += samples;
    step.longest = std::max(step.longest, tokens);
    ++step.requests;
  }
  return step;
}

TEST(StepCapacity, HoldsEachStep) {
  const RandomStream random(3, "steps");
  std::uint64_t at = 0;
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(at++, static_cast<std::uint64_t>(bound)));
  };
  for (int trial = 0; trial < 400; ++trial) {
    EngineOptions options;
    options.max_num_seqs = 1 + below(trial % 2 == 0 ? 12 : 600);
    options.num_speculative_tokens = trial % 3 == 0 ? 1 + below(4) : 0;
    options.max_prompt_samples = trial % 5 == 0 ? 1 + below(256) : 0;
    options.max_batch_tokens = 1 + below(trial % 4 == 0 ? 40 : 3000);
    for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      const std::vector<StepCapacity> capacities = engine_capacities(options, device);
      const bool gpu = device == DeviceKind::kCuda;
      for (int i = 0; i < 20; ++i) {
        const RandomStep step = random_step(random, at, options);
        const bool prompts = step.longest > 1 + options.num_speculative_tokens;
        const StepCapacity& capacity = capacities[capacity_of_step(capacities, step.tokens, prompts)];
        ASSERT_GE(capacity.tokens, step.tokens);
        ASSERT_GE(capacity.requests, step.requests) << capacity.tokens << " tokens";
        ASSERT_GE(capacity.samples, step.samples) << capacity.tokens << " tokens";
        ASSERT_LE(capacity.requests, capacity.tokens);
        // At most a fifth of many rows is empty, and less than half of few.
        if (gpu && step.tokens > 8) {
          ASSERT_LT(4 * capacity.tokens, (step.tokens > 128 ? 5 : 8) * step.tokens);
        }
        // Attention has its kernel for sequences of few rows where each has one, and one for prompts.
        if (step.longest == 1) {
          ASSERT_EQ(capacity.requests, capacity.tokens);
        }
        if (gpu && prompts && capacity.tokens >= 16) {
          ASSERT_LT(capacity.requests, capacity.tokens);
        }
      }
    }
  }
}

TEST(StepCapacity, OfAServer) {
  const EngineOptions options{.max_num_seqs = 140, .max_batch_tokens = 512, .max_prompt_samples = 256};
  const std::vector<StepCapacity> expected{{8, 8, 8},       {16, 15, 16},    {16, 16, 16},    {32, 31, 32},
                                           {32, 32, 32},    {64, 63, 64},    {64, 64, 64},    {128, 127, 128},
                                           {128, 128, 128}, {144, 140, 144}, {144, 144, 144}, {160, 140, 160},
                                           {192, 140, 192}, {224, 140, 224}, {256, 140, 256}, {320, 140, 320},
                                           {384, 140, 384}, {448, 140, 396}, {512, 140, 396}};
  EXPECT_EQ(engine_capacities(options, DeviceKind::kCuda), expected);
  const std::vector<StepCapacity> on_cpu{{8, 8, 8},       {16, 16, 16},    {32, 32, 32},    {64, 64, 64},
                                         {128, 128, 128}, {144, 144, 144}, {256, 140, 256}, {512, 140, 396}};
  EXPECT_EQ(engine_capacities(options, DeviceKind::kCpu), on_cpu);
}

}  // namespace
}  // namespace hone::test
