// Tests of the sizes that an engine has where the user sets none.
#include "engine/cache_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "engine/generation_workspace.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

std::vector<std::int64_t> tokens_of(const std::vector<Capacity>& capacities) {
  std::vector<std::int64_t> tokens;
  tokens.reserve(capacities.size());
  for (const Capacity& capacity : capacities) tokens.push_back(capacity.tokens);
  return tokens;
}

TEST(EngineCapacities, HaveAtMostAQuarterOfEmptyRowsOnAGpu) {
  for (const std::int64_t most : {8, 100, 512, 1500, 2048}) {
    const EngineOptions options{.max_num_seqs = 84, .max_batch_tokens = most};
    const std::vector<std::int64_t> tokens = tokens_of(engine_capacities(options, DeviceKind::kCuda));
    EXPECT_TRUE(std::ranges::is_sorted(tokens));
    EXPECT_EQ(tokens.back(), most);
    for (std::int64_t step = 1; step <= most; ++step) {
      const std::int64_t capacity = *std::ranges::lower_bound(tokens, step);
      EXPECT_LE(capacity, std::max<std::int64_t>(step + 7, step * 5 / 4)) << most;
    }
    if (most > 88) {
      EXPECT_THAT(tokens, testing::Contains(88));  // the 84 requests that decode
    }
  }
}

TEST(EngineCapacities, DoubleOnACpu) {
  const EngineOptions options{.max_num_seqs = 20, .max_batch_tokens = 100};
  EXPECT_THAT(tokens_of(engine_capacities(options, DeviceKind::kCpu)), testing::ElementsAre(8, 16, 24, 32, 64, 100));
}

TEST(CacheMemory, IsThatOfAllRequestsOrWhatFits) {
  FixtureModel fixture("llama");
  const EngineOptions options = engine_options({.max_model_len = 64, .max_num_seqs = 10});
  const auto with = [&](std::int64_t bytes) {
    return with_cache_that_fits(options, *fixture.model, DType::kF32, test_device(), nullptr, {.bytes = bytes})
        .num_blocks;
  };
  EXPECT_EQ(with(0), 20);
  const auto block =
      static_cast<std::int64_t>(bytes_of_block(*fixture.model, DType::kF32, options, test_device().kind()));
  EXPECT_EQ(with(7 * block + block / 2), 7);
  EXPECT_EQ(with(100 * block), 20);
  try {
    (void)with(block);
    ADD_FAILURE() << "one block holds a request of two";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("kv_cache_memory_bytes"));
    EXPECT_THAT(error.what(), testing::HasSubstr("set max_model_len to at most 32, or kv_cache_memory_bytes"));
  }
  try {
    (void)with(block - 1);
    ADD_FAILURE() << "less than one block holds a request";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(text_of("set kv_cache_memory_bytes to at least ", 2 * block)));
  }
}

TEST(CacheMemory, LongerStepsTakeMore) {
  FixtureModel fixture("llama");
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const auto with = [&](std::int64_t tokens, std::int64_t blocks) {
      EngineOptions options = engine_options({.max_model_len = 64, .max_num_seqs = 10, .max_batch_tokens = tokens});
      options.num_blocks = blocks;
      return bytes_of_step(*fixture.model, DType::kF32, options, device);
    };
    EXPECT_GT(with(64, 20), 0u);
    EXPECT_GT(with(512, 20), 2 * with(64, 20));
    EXPECT_EQ(with(512, 100), with(512, 20));
  }
}

TEST(CacheMemory, NumbersOfTheUserCount) {
  EXPECT_EQ(num_seqs(3, DeviceKind::kCuda), 3);
  EXPECT_EQ(num_seqs(0, DeviceKind::kCuda), 256);
  EXPECT_EQ(num_seqs(0, DeviceKind::kCpu), 64);
  EXPECT_EQ(num_batched_tokens(7, DeviceKind::kCpu), 7);
  EXPECT_EQ(num_batched_tokens(0, DeviceKind::kCuda), 2048);
}

}  // namespace
}  // namespace hone::test
