#include "ops/adamw/rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/dtype.h"
#include "core/parallel.h"
#include "ops/adamw/adamw.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

float as_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

TEST(StochasticRounding, TheMeanOverAllBitsIsTheValue) {
  for (const float value : {1.00390625f, -3.1415927f, 1e-30f, 65504.4f, -7e-5f}) {
    double sum = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float rounded = as_float(round_stochastically(value, bits));
      ASSERT_LE(std::abs(rounded - value), std::abs(value) * 0x1p-7f) << value;
      sum += static_cast<double>(rounded);
    }
    EXPECT_NEAR(sum / 65536, static_cast<double>(value), std::abs(static_cast<double>(value)) * 1e-7) << value;
  }
}

TEST(StochasticRounding, KeepsWhatIsExactInfinityAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t bits : {0u, 1u, 32768u, 65535u}) {
    EXPECT_EQ(as_float(round_stochastically(0.5f, bits)), 0.5f);
    EXPECT_EQ(as_float(round_stochastically(0.0f, bits)), 0.0f);
    EXPECT_EQ(as_float(round_stochastically(kInfinity, bits)), kInfinity);
    EXPECT_EQ(as_float(round_stochastically(-kInfinity, bits)), -kInfinity);
    EXPECT_TRUE(std::isnan(as_float(round_stochastically(std::bit_cast<float>(0x7F800001u), bits))));
  }
}

struct Updated {
  std::vector<BFloat16> weight, gradient, m, v;
};

std::vector<BFloat16> narrow_values(const std::vector<std::byte>& bytes) {
  std::vector<BFloat16> values(bytes.size() / sizeof(BFloat16));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// One step at learning rate 1e-3 from weights of 1, gradients of 0.5 and moments of 0, everything in bf16.
Updated one_step(std::int64_t elements, std::int64_t stream, float step) {
  const Type type{DType::kBf16, {elements}};
  Program program;
  const Tensor weight = program.weight("w", type);
  const Tensor hyper = program.input("hyper", {DType::kF32, {kAdamwHypers}});
  const Tensor norm = program.input("norm", {DType::kF32, {1}});
  const Tensor bad = program.input("bad", {DType::kI32, {1}});
  const Tensor m = program.state("m", type);
  const Tensor v = program.state("v", type);
  adamw({weight, program.gradient("w", type), m, v, {}}, {.norm = norm, .hyper = hyper, .bad = bad},
        {.seed = 9, .stream = stream});
  const NamedType named{"w", type};
  const NamedType states_named[] = {{"m", type}, {"v", type}};
  register_operations();
  TensorStore weights(test_device(), {&named, 1});
  TensorStore gradients(test_device(), {&named, 1});
  TensorStore states(test_device(), states_named);
  const std::vector<BFloat16> ones(static_cast<std::size_t>(elements), BFloat16(1.0f));
  const std::vector<BFloat16> halves(static_cast<std::size_t>(elements), BFloat16(0.5f));
  weights.upload("w", std::as_bytes(std::span(ones)));
  gradients.upload("w", std::as_bytes(std::span(halves)));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()),
                        {.weights = &weights, .gradients = &gradients, .states = &states});
  // learning rate, 1 / (1 - beta1), 1 / sqrt(1 - beta2), no clipping, step
  executable.set<float>("hyper", std::vector<float>{1e-3f, 10.0f, 31.622776f, 0.0f, step, 0.0f, 0.0f, 0.0f});
  executable.run();
  return {narrow_values(weights.download("w")), narrow_values(gradients.download("w")),
          narrow_values(states.download("m")), narrow_values(states.download("v"))};
}

double mean_of(const std::vector<BFloat16>& values) {
  double sum = 0;
  for (const BFloat16 value : values) sum += static_cast<double>(static_cast<float>(value));
  return sum / static_cast<double>(values.size());
}

std::vector<std::uint16_t> bits_of(const std::vector<BFloat16>& values) {
  std::vector<std::uint16_t> bits;
  for (const BFloat16 value : values) bits.push_back(value.bits);
  return bits;
}

// Parts of a loop on threads may start at odd elements, inside a group that shares random bits.
TEST(Adamw, RandomBitsAreThoseOfTheElementOnAnyThreads) {
  constexpr std::int64_t kElements = 3 * 16384 + 1;
  const AdamwAttributes attributes;
  const float square = static_cast<float>(1.0 - attributes.beta2) * 0.5f * 0.5f;
  const int before = thread_count();
  for (const int threads : {1, 3, 4}) {
    set_thread_count(threads);
    const Updated updated = one_step(kElements, 3, 1);
    for (std::int64_t i = 0; i < kElements; ++i) {
      const RoundingBits bits = rounding_bits(9, 3, 1, static_cast<std::uint64_t>(i) / 2);
      ASSERT_EQ(updated.v[static_cast<std::size_t>(i)].bits,
                round_stochastically(square, bits.get(static_cast<int>(i % 2), 2)))
          << i << " of " << threads << " threads";
    }
  }
  set_thread_count(before);
}

// A step of 1e-3 is a quarter of the distance between bf16 numbers below 1: rounded to nearest it would always vanish.
TEST(Adamw, SmallStepsCountInBf16) {
  const std::int64_t elements = 20001;
  const Updated updated = one_step(elements, 3, 1.0f);
  EXPECT_NEAR(mean_of(updated.weight), 1.0 - 1e-3, 5e-5);
  EXPECT_NEAR(mean_of(updated.m), 0.05, 4e-6);
  EXPECT_NEAR(mean_of(updated.v), 0.00025, 3e-8);
  for (const BFloat16 gradient : updated.gradient) ASSERT_EQ(static_cast<float>(gradient), 0.0f);
  EXPECT_EQ(bits_of(one_step(elements, 3, 1.0f).weight), bits_of(updated.weight));
  EXPECT_NE(bits_of(one_step(elements, 4, 1.0f).weight), bits_of(updated.weight));
  EXPECT_NE(bits_of(one_step(elements, 3, 2.0f).weight), bits_of(updated.weight));
}

}  // namespace
}  // namespace hone::test
