// Rows of a linear layer do not depend on how many are computed together: on a GPU few rows run other kernels than
// many, and one kernel for a product and the swiglu of it.
#include <gtest/gtest.h>

#include "ops/linear/linear.h"
#include "ops/linear_swiglu/linear_swiglu.h"
#include "ops/registry.h"
#include "ops/swiglu/swiglu.h"
#include "ops/test_run.h"

namespace hone::test {
namespace {

struct LayerShape {
  std::int64_t n, k;  // outputs, inputs
  bool bias, f32_output;
};

std::vector<BFloat16> spread_values(std::int64_t count, std::uint32_t seed) {
  std::vector<BFloat16> values(static_cast<std::size_t>(count));
  std::uint32_t state = seed;
  for (BFloat16& value : values) {
    state = state * 1664525 + 1013904223;
    value = BFloat16(static_cast<float>(static_cast<std::int32_t>(state >> 8) - (1 << 23)) / (1 << 23));
  }
  return values;
}

struct LayerValues {
  explicit LayerValues(const LayerShape& shape)
      : weight(spread_values(shape.n * shape.k, 1)),
        bias(spread_values(shape.n, 2)),
        x(spread_values(std::int64_t{1024} * shape.k, 3)) {}
  std::vector<BFloat16> weight;  // [n, k]
  std::vector<BFloat16> bias;    // [n]
  std::vector<BFloat16> x;       // [1024, k]
};

// Returns the first `count` rows of a linear layer that computes `rows` rows.
std::vector<float> first_rows(const LayerShape& shape, const LayerValues& values, std::int64_t rows,
                              std::int64_t count) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{rows, Count::tokens}, shape.k}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {shape.n, shape.k}});
  const Tensor bias = shape.bias ? program.weight("bias", {DType::kBf16, {shape.n}}) : Tensor();
  program.output("y", linear(x, weight, bias, {.f32_output = shape.f32_output}));
  TestRun run(std::move(program));
  run.set_weight("weight", values.weight);
  if (shape.bias) run.set_weight("bias", values.bias);
  run.set("x", std::vector<BFloat16>(values.x.begin(), values.x.begin() + rows * shape.k));
  run.executable().set_count(Count::tokens, rows);
  run.executable().run();
  const auto size = static_cast<std::size_t>(count * shape.n);
  if (shape.f32_output) return run.output<float>("y", size);
  std::vector<float> result;
  for (const BFloat16 value : run.output<BFloat16>("y", size)) result.push_back(static_cast<float>(value));
  return result;
}

TEST(FewRows, AreThoseOfManyRows) {
  const bool on_cuda = test_device().kind() == DeviceKind::kCuda;
  const std::vector<LayerShape> shapes =
      on_cuda ? std::vector<LayerShape>{{6144, 4096, false, false},  {4096, 4096, false, false},
                                        {28672, 4096, false, false}, {4096, 14336, false, false},
                                        {32000, 4096, false, true},  {4608, 3584, true, false},
                                        {37888, 3584, false, false}, {3584, 18944, false, false},
                                        {1152, 896, true, false},    {9728, 896, false, false},
                                        {896, 4864, false, false},   {384, 128, false, true},
                                        {50257, 768, false, true},   {40, 24, true, false},
                                        {5120, 2568, true, true}}
              : std::vector<LayerShape>{{96, 72, true, false}, {40, 24, false, true}};
  for (const LayerShape& shape : shapes) {
    const LayerValues values(shape);
    const std::vector<float> many = first_rows(shape, values, 1024, 512);
    for (const std::int64_t rows : {1, 2, 8, 9, 16, 24, 32, 48, 64, 100, 128, 129, 192, 256, 300, 384, 512}) {
      const std::vector<float> few = first_rows(shape, values, rows, rows);
      const auto size = static_cast<std::ptrdiff_t>(few.size());
      EXPECT_TRUE(same_bits(few, std::vector<float>(many.begin(), many.begin() + size)))
          << shape.n << " x " << shape.k << ", " << rows << " rows";
    }
  }
}

// Compares linear_swiglu with the two operations in every bit of the rows in use.
void expect_bits_of_two_operations(const LayerShape& shape, const LayerValues& values, std::int64_t rows,
                                   std::int64_t used) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{rows, Count::tokens}, shape.k}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {shape.n, shape.k}});
  const Tensor bias = shape.bias ? program.weight("bias", {DType::kBf16, {shape.n}}) : Tensor();
  program.output("two", swiglu(linear(x, weight, bias)));
  program.output("one", linear_swiglu(x, weight, bias));
  TestRun run(std::move(program));
  run.set_weight("weight", values.weight);
  if (shape.bias) run.set_weight("bias", values.bias);
  run.set("x", std::vector<BFloat16>(values.x.begin(), values.x.begin() + rows * shape.k));
  run.executable().set_count(Count::tokens, used);
  run.executable().run();
  const auto size = static_cast<std::size_t>(used * shape.n / 2);
  EXPECT_TRUE(same_bits(run.output<BFloat16>("one", size), run.output<BFloat16>("two", size)))
      << shape.n << " x " << shape.k << ", " << used << " of " << rows << " rows";
}

TEST(FewRows, OfGateAndUpHaveTheBitsOfTwoOperations) {
  register_operations();
  const bool on_cuda = test_device().kind() == DeviceKind::kCuda;
  const std::vector<LayerShape> shapes =
      on_cuda
          ? std::vector<LayerShape>{{28672, 4096, false, false}, {37888, 3584, false, false}, {9728, 896, false, false},
                                    {24576, 4096, false, false}, {9728, 896, true, false},    {2816, 2056, true, false},
                                    {80, 24, true, false},       {72, 40, false, false}}
          : std::vector<LayerShape>{{96, 72, true, false}, {40, 24, false, false}};
  for (const LayerShape& shape : shapes) {
    const LayerValues values(shape);
    for (const std::int64_t rows : {1, 2, 3, 7, 8, 9, 16, 17, 24, 32, 33, 48, 64, 65, 80, 96, 100, 127, 128, 160}) {
      expect_bits_of_two_operations(shape, values, rows, rows);
    }
    for (const std::int64_t rows : {2, 16, 32, 64, 128}) {
      expect_bits_of_two_operations(shape, values, rows, rows / 2 + 1);
    }
  }
}

}  // namespace
}  // namespace hone::test
