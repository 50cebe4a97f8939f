#include "ops/adamw_8bit/adamw_8bit.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "ops/adamw_8bit/code_table.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

float signed_value(int code) {
  return code < kZeroCode ? -kSignedMap.values[static_cast<std::size_t>(kZeroCode - code)]
                          : kSignedMap.values[static_cast<std::size_t>(code - kZeroCode)];
}

TEST(DynamicMap, IsTheOneOfItsFormula) {
  const Json run = read_json(fixture("ops/adamw_8bit.json"));
  const auto expected_signed = run.at("signed_map").get<std::vector<float>>();
  const auto expected_unsigned = run.at("unsigned_map").get<std::vector<float>>();
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(signed_value(code), expected_signed[static_cast<std::size_t>(code)]) << code;
    EXPECT_EQ(kUnsignedMap.values[static_cast<std::size_t>(code)], expected_unsigned[static_cast<std::size_t>(code)]);
  }
}

template <int kFirst>
void expect_nearest(const DynamicMap<kFirst>& map) {
  const auto expect = [&](float value) {
    int best = 0;
    for (int i = 1; i < DynamicMap<kFirst>::kSize; ++i) {
      if (value > map.middles[static_cast<std::size_t>(i - 1)]) best = i;
    }
    ASSERT_EQ(map.nearest(value), best) << value;
  };
  for (int i = 0; i < DynamicMap<kFirst>::kSize; ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (const float value : {map.values[at], map.middles[at]}) {
      expect(value);
      expect(std::nextafter(value, 0.0f));
      expect(std::nextafter(value, 2.0f));
    }
  }
  for (float value = 1e-8f; value < 1.5f; value *= 1.0007f) expect(value);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_GE(map.nearest(value), 0);
    EXPECT_LT(map.nearest(value), DynamicMap<kFirst>::kSize);
  }
}

TEST(DynamicMap, FindsTheNearest) {
  expect_nearest(kSignedMap);
  expect_nearest(kUnsignedMap);
}

TEST(DynamicMap, WhatIsNegativeStaysNegative) {
  EXPECT_EQ(signed_code(0, true), kZeroCode - 1);
  EXPECT_EQ(signed_code(0, false), kZeroCode);
  EXPECT_EQ(signed_code(128, true), 0);
  EXPECT_EQ(signed_code(128, false), 255);
}

// The code that a GPU computes for |number| / scale; the table gives the sign.
template <int kFirst, bool kNegative>
int code_of(const CodeTable<kFirst, kNegative>& table, float share) {
  using Table = CodeTable<kFirst, kNegative>;
  const auto bits = std::bit_cast<std::uint32_t>(share * kCodeScale);
  const std::uint32_t byte = (table.entries.at(bits >> Table::kDown) + (bits << Table::kUp)) >> 24;
  return static_cast<int>(kNegative ? 255 - byte : byte);
}

TEST(CodeTable, GivesTheCodesOfTheMap) {
  const CodeTable<1> positive;
  const CodeTable<1, true> negative;
  const CodeTable<2> magnitudes;
  const auto expect = [&](float share) {
    ASSERT_EQ(code_of(positive, share), signed_code(kSignedMap.nearest(share), false)) << share;
    ASSERT_EQ(code_of(negative, share), signed_code(kSignedMap.nearest(share), true)) << share;
    ASSERT_EQ(code_of(magnitudes, share), kUnsignedMap.nearest(share)) << share;
  };
  const auto expect_around = [&](const auto& map) {
    for (std::size_t i = 0; i + 1 < map.values.size(); ++i) {
      for (const float share : {map.values[i], map.middles[i]}) {
        expect(share);
        expect(std::nextafter(share, 0.0f));
        expect(std::nextafter(share, 2.0f));
      }
    }
  };
  expect_around(kSignedMap);
  expect_around(kUnsignedMap);
  expect(std::nextafter(1.0f, 2.0f));
  for (float share = 1e-45f; share <= 1.0f; share *= 1.5f) expect(share);
  for (float share = 1e-7f; share <= 1.0f; share *= 1.0003f) expect(share);
}

// A NaN has the code of the largest number, as by DynamicMap::nearest(), which the CPU uses.
TEST(CodeTable, OfNan) {
  using Signed = CodeTable<1>;
  using Unsigned = CodeTable<2>;
  EXPECT_EQ((Signed::kNanEntry + (Signed::kNan << Signed::kUp)) >> 24, 255u);
  EXPECT_EQ((Unsigned::kNanEntry + (Unsigned::kNan << Unsigned::kUp)) >> 24, 255u);
  const float nan = std::bit_cast<float>(Signed::kNan);
  EXPECT_EQ(signed_code(kSignedMap.nearest(nan), false), 255);
  EXPECT_EQ(kUnsignedMap.nearest(nan), 255);
}

// A program that updates one weight, with its stores.
class Adamw8BitRun {
 public:
  Adamw8BitRun(std::int64_t elements, DType dtype, DType gradient, AdamwAttributes attributes) {
    register_operations();
    const NamedType weight{"w", {dtype, {elements}}};
    const NamedType summed{"w", {gradient, {elements}}};
    const Type codes{DType::kU8, {elements}};
    const Type scales{DType::kF32, {scales_of(elements)}};
    const std::vector<NamedType> states{
        {"m", codes}, {"v", codes}, {"m_scale", scales}, {"v_scale", scales}, {"bad", {DType::kI32, {1}}}};
    weights_ = TensorStore(test_device(), {&weight, 1});
    gradients_ = TensorStore(test_device(), {&summed, 1});
    states_ = TensorStore(test_device(), states);
    Program program;
    const AdamwStep step{program.input("norm", {DType::kF32, {1}}),
                         program.input("hyper", {DType::kF32, {kAdamwHypers}}),
                         program.state("bad", {DType::kI32, {1}})};
    adamw_8bit({program.weight("w", weight.type), program.gradient("w", summed.type), program.state("m", codes),
                program.state("v", codes), program.state("m_scale", scales), program.state("v_scale", scales)},
               step, attributes);
    executable_ =
        std::make_unique<Executable>(program, std::make_shared<Arena>(test_device()),
                                     Bindings{.weights = &weights_, .gradients = &gradients_, .states = &states_});
  }

  template <class T>
  void set_weight(const std::vector<T>& values) {
    weights_.upload("w", std::as_bytes(std::span(values)));
  }
  template <class T>
  void set_gradient(const std::vector<T>& values) {
    gradients_.upload("w", std::as_bytes(std::span(values)));
  }
  void set_bad(std::int32_t bad) { states_.upload("bad", std::as_bytes(std::span(&bad, 1))); }
  void run(float learning_rate, float correction1, float correction2, float step) {
    executable_->set<float>("hyper", std::vector<float>{learning_rate, correction1, correction2, 0, step, 0, 0, 0});
    executable_->run();
  }
  template <class T>
  [[nodiscard]] std::vector<T> state(const char* name) const {
    return typed<T>(states_, name);
  }
  template <class T>
  [[nodiscard]] std::vector<T> weight() const {
    return typed<T>(weights_, "w");
  }
  [[nodiscard]] bool gradient_is_zero() const {
    for (const std::byte byte : gradients_.download("w")) {
      if (byte != std::byte{0}) return false;
    }
    return true;
  }

 private:
  template <class T>
  static std::vector<T> typed(const TensorStore& store, const char* name) {
    const std::vector<std::byte> bytes = store.download(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  TensorStore weights_, gradients_, states_;
  std::unique_ptr<Executable> executable_;
};

std::vector<BFloat16> narrowed_values(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Codes and scales equal numpy's bit by bit for every dtype of the weight and its gradient.
TEST(Adamw8bit, FollowsNumpy) {
  const Json run = read_json(fixture("ops/adamw_8bit.json"));
  const auto start = run.at("start").get<std::vector<float>>();
  const auto elements = static_cast<std::int64_t>(start.size());
  const AdamwAttributes attributes{.beta1 = run.at("beta1").get<double>(),
                                   .beta2 = run.at("beta2").get<double>(),
                                   .epsilon = run.at("epsilon").get<double>(),
                                   .weight_decay = run.at("weight_decay").get<double>()};
  Adamw8BitRun full(elements, DType::kF32, DType::kF32, attributes);
  Adamw8BitRun half(elements, DType::kBf16, DType::kF32, attributes);
  Adamw8BitRun narrow(elements, DType::kBf16, DType::kBf16, attributes);
  full.set_weight(start);
  half.set_weight(narrowed_values(start));
  narrow.set_weight(narrowed_values(start));
  float step_number = 0;
  for (const auto& step : run.at("steps")) {
    const auto gradient = step.at("gradient").get<std::vector<float>>();
    full.set_gradient(gradient);
    half.set_gradient(gradient);
    narrow.set_gradient(narrowed_values(gradient));
    ++step_number;
    for (Adamw8BitRun* each : {&full, &half, &narrow}) {
      each->run(run.at("learning_rate").get<float>(), step.at("corrections").at(0).get<float>(),
                step.at("corrections").at(1).get<float>(), step_number);
      for (const char* name : {"m", "v"}) {
        ASSERT_EQ(each->state<std::uint8_t>(name), step.at(name).get<std::vector<std::uint8_t>>()) << name;
      }
      for (const char* name : {"m_scale", "v_scale"}) {
        ASSERT_EQ(each->state<float>(name), step.at(name).get<std::vector<float>>()) << name;
      }
      EXPECT_TRUE(each->gradient_is_zero());
    }
  }
  const auto expected = run.at("end").get<std::vector<float>>();
  const std::vector<float> actual = full.weight<float>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 1e-6 * std::max(1.0f, std::abs(expected[i]))) << i;
  }
  EXPECT_EQ(std::memcmp(half.weight<BFloat16>().data(), narrow.weight<BFloat16>().data(), 2 * expected.size()), 0);
}

// A bf16 weight has no master: steps of a quarter of the distance to the next bf16 number still add up.
TEST(Adamw8bit, SmallStepsCountInBf16) {
  const std::size_t elements = 20001;
  Adamw8BitRun optimizer(static_cast<std::int64_t>(elements), DType::kBf16, DType::kF32, {.seed = 9, .stream = 3});
  optimizer.set_weight(std::vector<BFloat16>(elements, BFloat16(1.0f)));
  optimizer.set_gradient(std::vector<float>(elements, 0.5f));
  optimizer.run(1e-3f, 10.0f, 31.622776f, 1);
  double sum = 0;
  for (const BFloat16 weight : optimizer.weight<BFloat16>()) sum += static_cast<double>(static_cast<float>(weight));
  EXPECT_NEAR(sum / static_cast<double>(elements), 1.0 - 1e-3, 5e-5);
}

// A block whose largest number is too small to be a scale becomes zeros, and untouched blocks stay zeros.
TEST(Adamw8bit, TinyBlocksAreZero) {
  Adamw8BitRun optimizer(512, DType::kF32, DType::kF32, {});
  std::vector<float> gradient(512, 1e-38f);
  gradient[300] = 1e-18f;
  optimizer.set_gradient(gradient);
  optimizer.run(1e-3f, 10.0f, 31.6f, 1);
  EXPECT_EQ(optimizer.state<float>("m_scale"), (std::vector<float>{0, 1e-18f * static_cast<float>(1.0 - 0.9)}));
  EXPECT_EQ(optimizer.state<float>("v_scale"), (std::vector<float>{0, 0}));
  const auto m = optimizer.state<std::uint8_t>("m");
  EXPECT_EQ(m[0], kZeroCode);
  EXPECT_EQ(m[300], 255);
  EXPECT_EQ(m[301], kZeroCode);
  for (const float weight : optimizer.weight<float>()) ASSERT_TRUE(std::isfinite(weight));
}

// Every state block is updated once, also in a tensor for which the blocks of a GPU take several turns and several
// waves (12 million elements), and the last, partial one.
TEST(Adamw8bit, UpdatesEveryStateBlock) {
  const std::size_t elements = (std::size_t{12} << 20) + 77;
  Adamw8BitRun optimizer(static_cast<std::int64_t>(elements), DType::kF32, DType::kF32, {});
  std::vector<float> start(elements);
  for (std::size_t i = 0; i < elements; ++i) start[i] = static_cast<float>(i / 256 % 4096);
  optimizer.set_weight(start);
  optimizer.set_gradient(std::vector<float>(elements, 0.5f));
  optimizer.run(0.5f, 10.0f, 31.622776f, 1);
  const std::vector<float> weight = optimizer.weight<float>();
  for (std::size_t i = 0; i < elements; ++i) ASSERT_NEAR(weight[i], start[i] - 0.5f, 1e-3f) << i;
  for (const char* name : {"m", "v"}) {
    for (const std::uint8_t code : optimizer.state<std::uint8_t>(name)) ASSERT_EQ(code, 255) << name;
  }
  EXPECT_TRUE(optimizer.gradient_is_zero());
}

// With an epsilon so small that it does not hide them, second moments below the smallest normal number still scale
// steps.
TEST(Adamw8bit, SubnormalMomentsCount) {
  Adamw8BitRun optimizer(512, DType::kF32, DType::kF32, {.epsilon = 1e-30});
  optimizer.set_weight(std::vector<float>(512, 1.0f));
  optimizer.set_gradient(std::vector<float>(512, 1e-19f));
  optimizer.run(1e-3f, 10.0f, 31.622776f, 1);
  for (const float weight : optimizer.weight<float>()) ASSERT_NEAR(weight, 1.0f - 1e-3f, 1e-6f);
}

TEST(Adamw8bit, WhatIsNotFiniteChangesNothing) {
  Adamw8BitRun optimizer(700, DType::kF32, DType::kF32, {});
  const std::vector<float> start(700, 1.0f);
  optimizer.set_weight(start);
  optimizer.set_gradient(std::vector<float>(700, std::numeric_limits<float>::quiet_NaN()));
  optimizer.set_bad(1);
  optimizer.run(1e-3f, 10.0f, 31.6f, 1);
  EXPECT_EQ(optimizer.weight<float>(), start);
  EXPECT_EQ(optimizer.state<std::uint8_t>("m"), std::vector<std::uint8_t>(700, 0));
  EXPECT_TRUE(optimizer.gradient_is_zero());
}

TEST(Adamw8bit, NamesWhatDoesNotFit) {
  register_operations();
  try {
    Adamw8BitRun(300, DType::kBf16, DType::kF64, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the gradient is f64[300]; expected f32[300]"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hone::test
