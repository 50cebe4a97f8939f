#include "train/memory_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace hone {
namespace {

using testing::HasSubstr;

constexpr std::size_t kGib = std::size_t{1} << 30;

// Returns the bytes of a fictitious run with 8 GiB of weights, in which the cost of each option is known.
std::size_t bytes_of(const TrainingOptions& options) {
  std::size_t gib = 8;
  gib += options.gradient_dtype == GradientType::kBfloat16 ? 8 : 16;
  gib += options.optim == OptimizerType::kAdamw ? 48 : options.optim == OptimizerType::kAdamwBf16 ? 16 : 8;
  const std::size_t row = options.gradient_checkpointing == Recomputation::kOn ? 1 : 5;
  return (gib + row * static_cast<std::size_t>(options.per_device_train_batch_size)) * kGib;
}

TrainingOptions eight_rows() {
  TrainingOptions options;
  options.per_device_train_batch_size = 8;
  options.gradient_checkpointing = Recomputation::kOff;
  return options;
}

std::string text(std::size_t available_gib, const TrainingOptions& options = eight_rows(), DType dtype = DType::kBf16) {
  return memory_fit_text(options, dtype, {.total = 140 * kGib, .available = available_gib * kGib}, bytes_of(options),
                         {bytes_of});
}

TEST(Fit, SaysThatItDoes) { EXPECT_EQ(text(112), "available 112.00 GiB of 140.00 GiB: it fits\n"); }

TEST(Fit, ChangesTheMildestKeysUntilItDoes) {
  EXPECT_EQ(text(111),
            "available 111.00 GiB of 140.00 GiB: 1.00 GiB too much\n"
            "29.00 GiB are already in use, possibly by other processes: freeing them would be enough; it fits with "
            "gradient_checkpointing: true (takes 80.00 GiB)\n");
  EXPECT_THAT(text(79), HasSubstr("it fits with gradient_checkpointing: true (takes 80.00 GiB), then gradient_dtype: "
                                  "bfloat16 (takes 72.00 GiB)\n"));
  EXPECT_THAT(text(25), HasSubstr("optim: adamw_bf16 (takes 40.00 GiB), then optim: adamw_8bit (takes 32.00 GiB), then "
                                  "per_device_train_batch_size: 1 (takes 25.00 GiB)\n"));
}

// A run whose micro-batches are cut by tokens keeps its batch: half the tokens are tried, and half of those.
TEST(Fit, HalvesTheTokensOfAMicroBatch) {
  const auto bytes = [](const TrainingOptions& options) {
    return bytes_of(TrainingOptions()) - 8 * kGib +
           static_cast<std::size_t>(options.max_tokens_per_micro_batch.value_or(8192)) * (kGib / 1024);
  };
  const auto fit = [&](std::size_t available_gib) {
    return changes_to_fit(eight_rows(), DType::kF32, available_gib * kGib, bytes(eight_rows()),
                          {.with = bytes, .micro_batch = {.most = 8192, .least = 1500}});
  };
  const std::size_t without = bytes(eight_rows()) / kGib - 8;
  ASSERT_EQ(fit(without + 4).size(), 1u);
  EXPECT_EQ(fit(without + 4)[0].text, "max_tokens_per_micro_batch: 4096");
  ASSERT_EQ(fit(without + 3).size(), 1u);
  EXPECT_EQ(fit(without + 3)[0].text, "max_tokens_per_micro_batch: 2048");
  EXPECT_EQ(fit(without)[0].text, "max_tokens_per_micro_batch: 1500");
}

TEST(Fit, SaysWhatIsMissingWhenAllKeysAreChanged) {
  EXPECT_THAT(text(22),
              HasSubstr("per_device_train_batch_size: 1 (takes 25.00 GiB) it still lacks 3.00 GiB of memory\n"));
}

TEST(Fit, SpeaksOfOtherProcessesOnlyWhereTheyMatter) {
  const auto of = [](std::size_t total, std::size_t available) {
    return memory_fit_text(eight_rows(), DType::kBf16, {.total = total * kGib, .available = available * kGib},
                           bytes_of(eight_rows()), {bytes_of});
  };
  EXPECT_THAT(of(112, 110), HasSubstr("2.00 GiB are already in use"));
  EXPECT_THAT(of(111, 80), testing::Not(HasSubstr("in use")));
  EXPECT_THAT(of(112, 112), testing::Not(HasSubstr("in use")));
}

TEST(Fit, LeavesOutWhatTheRunHasAlready) {
  TrainingOptions options = eight_rows();
  options.gradient_checkpointing = Recomputation::kOn;
  options.per_device_train_batch_size = 1;
  EXPECT_THAT(text(60, options, DType::kF32), HasSubstr("no option saves enough memory"));
}

TEST(Fit, RefusesOnOneLine) {
  const Device& device = cpu_device();
  const DeviceMemory there = memory_of(device);
  EXPECT_GT(there.available, 0u);
  EXPECT_LE(there.available, there.total);
  const auto same = [&](std::size_t bytes) { return RunBytes{[bytes](const TrainingOptions&) { return bytes; }}; };
  TrainingOptions options = eight_rows();
  options.device = DeviceChoice::kCpu;
  EXPECT_NO_THROW(check_fits(options, DType::kBf16, device, 1, same(1)));
  const std::size_t much = there.total + kGib;
  try {
    check_fits(options, DType::kBf16, device, much, same(much));
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("memory: the run takes "));
    EXPECT_THAT(error.what(), HasSubstr(" too much (no option saves enough memory"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace hone
