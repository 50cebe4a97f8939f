#include "ops/normal_fill/normal_fill.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

// Two parts of a weight are filled from two streams; the elements between them stay.
TEST(NormalFill, DrawsTheStreamInPlace) {
  const RandomStream first(5, "first");
  const RandomStream second(5, "second");
  Program program;
  Tensor weight = program.weight("w", {DType::kF32, {13, 7}});
  const auto key = [](const RandomStream& stream) { return static_cast<std::int64_t>(stream.key()); };
  weight = normal_fill(weight, {.key = key(first), .deviation = 0.5, .first = 0, .count = 33});
  weight = normal_fill(weight, {.key = key(second), .deviation = 2.0, .first = 42, .count = 49});
  program.output("w", weight);
  TestRun run(std::move(program));
  run.executable().run();
  const std::vector<float> values = run.output<float>("w", 91);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = i < 33 ? 0.5f * first.normal(i) : i < 42 ? 0.0f : 2.0f * second.normal(i - 42);
    EXPECT_FLOAT_EQ(values[i], expected) << i;
  }
}

TEST(NormalFill, RefusesElementsThatAreNotThere) {
  Program program;
  const Tensor weight = program.weight("w", {DType::kF32, {4, 4}});
  EXPECT_THROW(normal_fill(weight, {.first = 8, .count = 9}), Error);
}

}  // namespace
}  // namespace hone::test
