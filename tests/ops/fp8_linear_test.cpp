// A linear layer with FP8 weights gives the bits of linear() by the same weights in bf16, for any number of rows.
#include "ops/fp8_linear/fp8_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "backend/fp8_fragments.h"
#include "core/error.h"
#include "core/float8.h"
#include "ops/linear/linear.h"
#include "ops/test_run.h"
#include "support/bf16_products.h"

namespace hone::test {
namespace {

// kNoWeights: zeros of both signs, with scales that are powers of two.
enum class Scales : std::uint8_t { kPowersOfTwo, kAny, kNoWeights };

struct Fp8Shape {
  std::int64_t n, k;  // outputs, inputs
  std::int64_t scale_rows;
  Scales scales;
  bool bias;
};

struct Fp8Values {
  Fp8Values(const Fp8Shape& shape, std::int64_t rows)
      : weight(static_cast<std::size_t>(shape.n * shape.k)),
        scales(static_cast<std::size_t>((shape.n + shape.scale_rows - 1) / shape.scale_rows * scale_blocks(shape.k))),
        converted(weight.size()),
        bias(normal_values<BFloat16>(static_cast<std::size_t>(shape.n), 2)),
        x(normal_values<BFloat16>(static_cast<std::size_t>(rows * shape.k), 3)) {
    const RandomStream random(7, "fp8 weights");
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(random.below(i, 256));
      weight[i] = (byte & 0x7F) == 0x7F ? static_cast<std::uint8_t>(byte ^ 1) : byte;
      if (shape.scales == Scales::kNoWeights) weight[i] = i / 4096 % 2 == 0 ? 0x80 : weight[i] & 0x80;
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] = std::ldexp(1.0F, static_cast<int>(i % 5) - 12);
      if (shape.scales == Scales::kAny && i % 3 != 0) scales[i] *= 1 + static_cast<float>(random.uniform(i));
    }
    for (std::int64_t row = 0; row < shape.n; ++row) {
      dequantize_e4m3_row(weight.data() + row * shape.k, scales.data() + row / shape.scale_rows * scale_blocks(shape.k),
                          0, shape.k, converted.data() + row * shape.k);
    }
  }
  // The bytes of the weight in the order that the tested device has them in.
  [[nodiscard]] std::vector<std::uint8_t> in_memory(const Fp8Shape& shape) const {
    if (!fp8_in_fragments(test_device().kind(), shape.n, shape.k, shape.scale_rows)) return weight;
    std::vector<std::uint8_t> fragments(weight.size());
    fp8_to_fragments(weight, shape.k, fragments);
    return fragments;
  }

  std::vector<std::uint8_t> weight;  // [n, k]
  std::vector<float> scales;
  std::vector<BFloat16> converted;  // [n, k]
  std::vector<BFloat16> bias;       // [n]
  std::vector<BFloat16> x;          // [rows, k]
};

// Returns `rows` rows of the layer, which has room for `capacity`.
std::vector<BFloat16> layer(const Fp8Shape& shape, const Fp8Values& values, bool fp8, std::int64_t rows,
                            std::int64_t capacity) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{capacity, Count::tokens}, shape.k}});
  const Tensor weight = program.weight("weight", {fp8 ? DType::kU8 : DType::kBf16, {shape.n, shape.k}});
  const Tensor bias = shape.bias ? program.weight("bias", {DType::kBf16, {shape.n}}) : Tensor();
  if (fp8) {
    const Tensor scale = program.weight(
        "scale", {DType::kF32, {(shape.n + shape.scale_rows - 1) / shape.scale_rows, scale_blocks(shape.k)}});
    program.output("y", fp8_linear(x, weight, scale, bias, {.scale_rows = shape.scale_rows}));
  } else {
    program.output("y", linear(x, weight, bias));
  }
  TestRun run(std::move(program));
  if (fp8) {
    run.set_weight("weight", values.in_memory(shape));
    run.set_weight("scale", values.scales);
  } else {
    run.set_weight("weight", values.converted);
  }
  if (shape.bias) run.set_weight("bias", values.bias);
  std::vector<BFloat16> padded(static_cast<std::size_t>(capacity * shape.k));
  std::copy_n(values.x.begin(), rows * shape.k, padded.begin());
  run.set("x", padded);
  run.executable().set_count(Count::tokens, rows);
  run.executable().run();
  return run.output<BFloat16>("y", static_cast<std::size_t>(rows * shape.n));
}

void expect_same(const Fp8Shape& shape, std::span<const std::int64_t> rows, std::int64_t spare = 0) {
  const Fp8Values values(shape, *std::ranges::max_element(rows));
  for (const std::int64_t count : rows) {
    const std::vector<BFloat16> expected = layer(shape, values, false, count, count + spare);
    const std::vector<BFloat16> actual = layer(shape, values, true, count, count + spare);
    EXPECT_TRUE(same_bits(actual, expected))
        << shape.n << " x " << shape.k << ", scales of " << shape.scale_rows << " rows, " << count << " rows";
  }
}

TEST(Fp8Linear, HasTheBitsOfBf16Weights) {
  const bool on_cuda = test_device().kind() == DeviceKind::kCuda;
  std::vector<Fp8Shape> shapes{{40, 24, 8, Scales::kAny, true},     {96, 128, 128, Scales::kPowersOfTwo, false},
                               {200, 300, 128, Scales::kAny, true}, {33, 130, 1, Scales::kAny, false},
                               {256, 384, 64, Scales::kAny, true},  {144, 256, 16, Scales::kPowersOfTwo, true}};
  if (on_cuda) {
    shapes.insert(shapes.end(), {{6144, 4096, 128, Scales::kPowersOfTwo, false},
                                 {4096, 4096, 128, Scales::kAny, true},
                                 {28672, 4096, 128, Scales::kPowersOfTwo, false},
                                 {4096, 14336, 128, Scales::kAny, false},
                                 {1152, 896, 128, Scales::kAny, true},
                                 {896, 4864, 32, Scales::kPowersOfTwo, false}});
  }
  const std::vector<std::int64_t> rows{1, 2, 7, 8, 9, 16, 24, 32, 48, 64, 100, 128, 129, 200, 512, 513, 1024};
  for (const Fp8Shape& shape : shapes) expect_same(shape, rows);
  const std::vector<std::int64_t> many{8192};
  expect_same({72, 136, 8, Scales::kAny, true}, many);
  const std::vector<std::int64_t> few{1, 5, 60};
  expect_same({256, 384, 64, Scales::kAny, true}, few, 77);
}

// Few rows of a GPU with wgmma have kernels that convert the weights in registers: tiles of 16 to 224 rows of W, all
// numbers of rows, stages of both parities, scales of one kind and of both kinds, sums that are zeros.
TEST(Fp8Linear, HasTheBitsOfBf16WeightsForEveryNumberOfFewRows) {
  if (test_device().kind() != DeviceKind::kCuda) GTEST_SKIP() << "a kernel of GPUs";
  std::vector<std::int64_t> rows(130);
  std::iota(rows.begin(), rows.end(), 1);
  expect_same({8, 128, 128, Scales::kAny, true}, rows);
  expect_same({1160, 896, 128, Scales::kPowersOfTwo, false}, rows);
  expect_same({4224, 256, 128, Scales::kAny, false}, rows);
  expect_same({6144, 640, 64, Scales::kPowersOfTwo, true}, rows);
  expect_same({16896, 384, 16, Scales::kAny, true}, rows);
  expect_same({28672, 256, 128, Scales::kPowersOfTwo, false}, rows);
  expect_same({40, 1536, 8, Scales::kNoWeights, false}, rows);
}

// Rows of W beyond what is converted at a time on a GPU.
TEST(Fp8Linear, HasTheBitsOfBf16WeightsInParts) {
  if (test_device().kind() != DeviceKind::kCuda) GTEST_SKIP() << "weights are converted in parts on a GPU only";
  const std::vector<std::int64_t> rows{1, 600};
  expect_same({17408, 8192, 128, Scales::kPowersOfTwo, true}, rows);
}

TEST(Fp8Linear, HasTheBitsOfBf16WeightsByEveryKindOfProduct) {
  if (test_device().kind() != DeviceKind::kCpu) GTEST_SKIP() << "kinds of products of CPUs";
  for (const Bf16Products kind : {Bf16Products::kFma, Bf16Products::kAvx512, Bf16Products::kAmx}) {
    if (!has_bf16_products(kind)) continue;
    const WithBf16Products with(kind);
    const std::vector<std::int64_t> rows{1, 24, 25, 64, 70};
    expect_same({200, 1500, 8, Scales::kAny, true}, rows);
    expect_same({33, 600, 1, Scales::kAny, false}, rows);
  }
}

TEST(Fp8Linear, ChecksTypes) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {4, 256}});
  const Tensor weight = program.weight("weight", {DType::kU8, {130, 256}});
  const Tensor scale = program.weight("scale", {DType::kF32, {2, 2}});
  EXPECT_EQ(fp8_linear(x, weight, scale).type(), (Type{DType::kBf16, {4, 130}}));
  EXPECT_THROW((void)fp8_linear(x, program.weight("bf16", {DType::kBf16, {130, 256}}), scale), Error);
  EXPECT_THROW((void)fp8_linear(x, weight, program.weight("one", {DType::kF32, {1, 2}})), Error);
  EXPECT_THROW((void)fp8_linear(x, weight, scale, {}, {.scale_rows = 64}), Error);
  EXPECT_THROW((void)fp8_linear(x, weight, scale, {}, {.scale_rows = 3}), Error);
  EXPECT_THROW((void)fp8_linear(x, weight, scale, program.weight("bias", {DType::kF32, {130}})), Error);
  EXPECT_THROW((void)linear(x, weight), Error);
}

}  // namespace
}  // namespace hone::test
