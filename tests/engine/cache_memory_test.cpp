// Tests of the sizes that an engine has where the user sets none.
#include "engine/cache_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/strings.h"
#include "engine/generation_workspace.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

TEST(CacheMemory, IsThatOfAllRequestsOrWhatFits) {
  FixtureModel fixture("llama");
  const EngineOptions options = engine_options({.max_model_len = 64, .max_num_seqs = 10});
  const auto with = [&](std::int64_t bytes) {
    return with_cache_that_fits(options, *fixture.model, DType::kF32, test_device(), nullptr,
                                {.bytes = bytes, .bytes_key = "kv_cache_memory_bytes"})
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
    EXPECT_THAT(error.what(),
                testing::HasSubstr("set max_model_len so that prompt and completion have at most 32 tokens, or set"));
  }
  try {
    (void)with(block - 1);
    ADD_FAILURE() << "less than one block holds a request";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(text_of("set kv_cache_memory_bytes to at least ", 2 * block)));
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
