// Products of quantized activations by FP8 weights in generation: those of torch, of an independent reference and of
// training, and the same bits for any number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/float8.h"
#include "core/json_value.h"
#include "ops/fp8_linear/fp8_linear.h"
#include "ops/linear/linear.h"
#include "ops/quantize_swiglu/quantize_swiglu.h"
#include "ops/quantized_reference.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "ops/swiglu/swiglu.h"
#include "ops/test_run.h"
#include "passes/fp8.h"
#include "passes/fusion.h"
#include "support/paths.h"

namespace hone::test {
namespace {

struct ServedShape {
  std::int64_t n, k;
  bool bias;
  bool powers_of_two = true;
};

// The weights of a layer as folders have them.
struct ServedWeights {
  std::vector<std::uint8_t> bytes;  // [n, k]
  std::vector<float> scales;        // [n / 128, k / 128]
  std::vector<BFloat16> bias;       // [n]
};

// Numbers of several magnitudes that are made faster than normal ones.
std::vector<BFloat16> quick_values(std::int64_t count, std::uint32_t seed) {
  std::vector<BFloat16> values(static_cast<std::size_t>(count));
  std::uint32_t state = seed;
  for (BFloat16& value : values) {
    state = state * 1664525 + 1013904223;
    const auto number = static_cast<float>(static_cast<std::int32_t>(state >> 8) - (1 << 23));
    value = BFloat16(number * ((state >> 28) % 3 == 0 ? 0x1p-23F : 0x1p-26F));
  }
  return values;
}

ServedWeights served_weights(const ServedShape& shape, const std::vector<BFloat16>& values) {
  ServedWeights weights{std::vector<std::uint8_t>(values.size()),
                        std::vector<float>(static_cast<std::size_t>(shape.n / 128 * (shape.k / 128))),
                        normal_values<BFloat16>(static_cast<std::size_t>(shape.n), 9)};
  EXPECT_TRUE(quantize_e4m3_blocks(values.data(), shape.n, shape.k, weights.bytes.data(), weights.scales.data()));
  for (float& scale : weights.scales) scale *= shape.powers_of_two ? 1.0F : 1.37F;
  return weights;
}

ServedWeights served_weights(const ServedShape& shape) { return served_weights(shape, values_of(shape.n, shape.k, 2)); }

Tensor served_layer(Program& program, Tensor x, const ServedShape& shape) {
  const Tensor weight = program.weight("weight", {DType::kU8, {shape.n, shape.k}});
  const Tensor scale = program.weight("scale", {DType::kF32, {shape.n / 128, shape.k / 128}}, false, true);
  const Tensor bias = shape.bias ? program.weight("bias", {DType::kBf16, {shape.n}}) : Tensor();
  return fp8_linear(x, weight, scale, bias, {.quantizes_x = true});
}

void set_weights(TestRun& run, const ServedShape& shape, const ServedWeights& weights) {
  run.set_weight("weight", weights.bytes);
  run.set_weight("scale", weights.scales);
  if (shape.bias) run.set_weight("bias", weights.bias);
}

// Returns the first `count` rows of a layer of `used` rows in a program of `capacity` rows.
std::vector<BFloat16> served_rows(const ServedShape& shape, const ServedWeights& weights,
                                  const std::vector<BFloat16>& x, std::int64_t capacity, std::int64_t used,
                                  std::int64_t count) {
  Program program;
  const Tensor input = program.input("x", {DType::kBf16, {{capacity, Count::tokens}, shape.k}});
  program.output("y", served_layer(program, input, shape));
  TestRun run(fuse(with_quantized_inputs(program), FusionScope::kProgram));
  set_weights(run, shape, weights);
  std::vector<BFloat16> rows(x.begin(), x.begin() + used * shape.k);
  rows.resize(static_cast<std::size_t>(capacity * shape.k), BFloat16(3.0F));
  run.set("x", rows);
  run.executable().set_count(Count::tokens, used);
  run.executable().run();
  return run.output<BFloat16>("y", static_cast<std::size_t>(count * shape.n));
}

// The product in f64 of the numbers that the bytes and scales stand for.
Product expected_product(const ServedShape& shape, const ServedWeights& weights, const std::vector<BFloat16>& x,
                         std::int64_t rows) {
  Matrix w(weights.bytes.size());
  for (std::int64_t i = 0; i < shape.n; ++i) {
    for (std::int64_t j = 0; j < shape.k; ++j) {
      w[i * shape.k + j] = static_cast<double>(e4m3_value(weights.bytes[i * shape.k + j])) *
                           static_cast<double>(weights.scales[i / 128 * (shape.k / 128) + j / 128]);
    }
  }
  Product y =
      multiply(reference_of(widened(x, rows, rows, shape.k), rows, shape.k, 1, 128).values, w, rows, shape.n, shape.k);
  for (std::int64_t i = 0; shape.bias && i < rows * shape.n; ++i) {
    y.values[i] += static_cast<double>(static_cast<float>(weights.bias[i % shape.n]));
  }
  // Scales that are no powers of two: a CPU rounds each weight to bf16.
  for (std::size_t i = 0; !shape.powers_of_two && i < y.magnitudes.size(); ++i) y.magnitudes[i] *= 64;
  return y;
}

TEST(ScaledRows, HaveTheProductsOfTheQuantizedOperands) {
  for (const ServedShape& shape : {ServedShape{128, 128, false}, ServedShape{384, 256, true},
                                   ServedShape{256, 640, false, false}, ServedShape{256, 384, true, false}}) {
    SCOPED_TRACE(text_of(shape.n, " x ", shape.k));
    const ServedWeights weights = served_weights(shape);
    const std::vector<BFloat16> x = values_of(37, shape.k, 1);
    const Product expected = expected_product(shape, weights, x, 37);
    expect_near(served_rows(shape, weights, x, 37, 37, 37), expected, 37 * shape.n, 1.0 / 256, "y");
  }
}

// The fixture is torch's (make_scaled_rows.py), which has made x and the weights by the formulas here.
TEST(ScaledRows, AreThoseOfTorch) {
  const Json fixture_of_torch = read_json(fixture("ops/scaled_rows.json"));
  constexpr std::int64_t kRows = 5, kN = 256, kK = 384;
  std::vector<BFloat16> x;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kK; ++j) {
      const auto number = static_cast<float>((i * 7919 + j * 104729) % 2001 - 1000);
      const auto exponent = -static_cast<int>((i + j / 50) % 9 + 3);
      x.emplace_back(i == 2 && j >= 128 && j < 256 ? 0.0F : std::ldexp(number, exponent));
    }
  }
  const ServedShape shape{kN, kK, false};
  ServedWeights weights;
  for (std::int64_t i = 0; i < kN; ++i) {
    for (std::int64_t j = 0; j < kK; ++j) {
      const std::int64_t byte = (i * 31 + j * 17 + i * j % 13) % 256;
      weights.bytes.push_back(static_cast<std::uint8_t>(byte % 128 == 127 ? byte - 1 : byte));
    }
  }
  for (int block = 0; block < kN / 128 * (kK / 128); ++block) weights.scales.push_back(std::ldexp(1.0F, -block - 6));

  Program program;
  const QuantizedRows quantized = quantize(program.input("x", {DType::kBf16, {kRows, kK}}), {.any_rows = true});
  program.output("bytes", quantized.rows);
  program.output("scale", quantized.row_scale);
  TestRun run(std::move(program));
  run.set("x", x);
  run.executable().run();
  const auto bytes = run.output<std::uint8_t>("bytes", kRows * kK);
  const auto hex = fixture_of_torch["bytes"].get<std::string>();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], std::stoi(hex.substr(2 * i, 2), nullptr, 16)) << "byte " << i;
  }
  const auto scales = run.output<float>("scale", kRows * (kK / 128));  // [k / 128, rows]
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t block = 0; block < kK / 128; ++block) {
      EXPECT_EQ(scales[block * kRows + i], fixture_of_torch["scale"][i * (kK / 128) + block].get<float>());
    }
  }
  const Product expected{fixture_of_torch["y"].get<Matrix>(), fixture_of_torch["magnitude"].get<Matrix>()};
  expect_near(served_rows(shape, weights, x, kRows, kRows, kRows), expected, kRows * kN, 1.0 / 256, "y");
}

// From one row to several tiles of a GPU, in programs with room for more rows, too.
TEST(ScaledRows, DoNotDependOnTheirNumber) {
  const bool on_gpu = test_device().kind() == DeviceKind::kCuda;
  const std::int64_t most = on_gpu ? 4096 : 300;
  std::vector<ServedShape> shapes{{256, 384, true}, {384, 256, false, false}};
  std::vector<std::int64_t> counts{1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 128, 130, 257, 300};
  if (on_gpu) {
    for (const std::int64_t rows : {192, 193, 384, 512, 1000, 2025, 2048, 4096}) counts.push_back(rows);
    shapes.insert(shapes.end(), {{6144, 4096, true}, {4096, 14336, false, false}});
  }
  for (const ServedShape& shape : shapes) {
    const ServedWeights weights = served_weights(shape, quick_values(shape.n * shape.k, 2));
    const std::vector<BFloat16> x = quick_values(most * shape.k, 1);
    const std::vector<BFloat16> all = served_rows(shape, weights, x, most, most, most);
    for (const std::int64_t rows : counts) {
      for (const std::int64_t capacity : {rows, std::min(most, rows + 23)}) {
        const std::vector<BFloat16> some = served_rows(shape, weights, x, capacity, rows, rows);
        ASSERT_TRUE(same_bits(some, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(some.size())}))
            << rows << " of " << capacity << " rows, " << shape.n << " x " << shape.k;
      }
    }
  }
}

// The forward pass of training by the weights in bf16. On a GPU its sums are cuBLASLt's.
TEST(ScaledRows, AreThoseOfTraining) {
  const ServedShape shape{256, 384, true};
  const std::vector<BFloat16> values = values_of(shape.n, shape.k, 2);
  const std::vector<BFloat16> x = values_of(48, shape.k, 1);
  const ServedWeights weights = served_weights(shape, values);
  for (const bool training : {false, true}) {
    Program program;
    const Tensor input = program.input("x", {DType::kBf16, {{48, Count::tokens}, shape.k}});
    program.output("y", linear(input, program.weight("weight", {DType::kBf16, {shape.n, shape.k}}),
                               program.weight("bias", {DType::kBf16, {shape.n}})));
    TestRun run(with_fp8(program, {"weight"}, training));
    run.set("x", x);
    run.set_weight("weight", values);
    run.set_weight("bias", weights.bias);
    run.executable().set_count(Count::tokens, 48);
    run.executable().run();
    EXPECT_TRUE(same_bits(run.output<BFloat16>("y", static_cast<std::size_t>(48 * shape.n)),
                          served_rows(shape, weights, x, 48, 48, 48)));
  }
}

std::ptrdiff_t nodes_of(const Program& program, std::string_view op) {
  return std::ranges::count_if(program.nodes(), [&](const Node& node) { return node.op->name() == op; });
}

TEST(ScaledRows, ShareTheQuantizedCopyOfAnInput) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{5, Count::tokens}, 256}});
  const auto layer = [&](const Tensor& from, const std::string& name, bool quantizes) {
    const Tensor weight = program.weight(name, {DType::kU8, {512, 256}});
    const Tensor scale = program.weight(name + ".scale", {DType::kF32, {4, 2}}, false, true);
    return fp8_linear(from, weight, scale, {}, {.quantizes_x = quantizes});
  };
  program.output("a", layer(x, "a", true));
  program.output("b", layer(swiglu(layer(x, "b", true)), "c", true));
  program.output("d", layer(x, "d", false));
  const Program fused = fuse(with_quantized_inputs(program), FusionScope::kProgram);
  EXPECT_EQ(nodes_of(fused, "quantize"), 1);
  EXPECT_EQ(nodes_of(fused, "quantize_swiglu"), 1);
  EXPECT_EQ(nodes_of(fused, "scaled_linear"), 3);
  EXPECT_EQ(nodes_of(fused, "fp8_linear"), 1);
}

// Swiglu and quantization in one kernel, for numbers of rows that fill no tile.
TEST(ScaledRows, SwigluOfAnyNumberOfRows) {
  for (const std::int64_t rows : {1, 3, 8, 21, 130}) {
    const std::vector<BFloat16> gate_up = values_of(rows, 512, 4);
    const auto run_form = [&](bool fused) {
      Program program;
      const Tensor x = program.input("x", {DType::kBf16, {{rows, Count::tokens}, 512}});
      const QuantizedRows quantized =
          fused ? quantize_swiglu(x, {.any_rows = true}) : quantize(swiglu(x), {.any_rows = true});
      program.output("bytes", quantized.rows);
      program.output("scale", quantized.row_scale);
      TestRun run(std::move(program));
      run.set("x", gate_up);
      const std::int64_t used = std::max<std::int64_t>(rows - 2, 1);
      run.executable().set_count(Count::tokens, used);
      run.executable().run();
      std::vector<float> numbers = run.output<float>("scale", static_cast<std::size_t>(2 * rows));
      for (const std::uint8_t byte : run.output<std::uint8_t>("bytes", static_cast<std::size_t>(rows * 256))) {
        numbers.push_back(byte);
      }
      return numbers;
    };
    EXPECT_EQ(run_form(true), run_form(false)) << rows << " rows";
  }
}

TEST(ScaledRows, ChecksTypes) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {17, 128}});
  EXPECT_THROW((void)quantize(x, {}), Error);
  EXPECT_THROW((void)quantize(x, {.columns = true, .any_rows = true}), Error);
  const QuantizedRows rows = quantize(x, {.any_rows = true});
  const QuantizedWeight weight{program.weight("weight", {DType::kU8, {128, 128}}),
                               program.weight("scale", {DType::kF32, {1, 1}}, false, true)};
  EXPECT_EQ(scaled_linear_of_any_rows(rows, weight, {}).type(), (Type{DType::kBf16, {17, 128}}));
  EXPECT_THROW((void)scaled_linear(rows, weight, {}, {}), Error);
  const Tensor odd = program.weight("odd", {DType::kU8, {192, 128}});
  const Tensor scale = program.weight("odd.scale", {DType::kF32, {2, 1}}, false, true);
  EXPECT_NO_THROW((void)fp8_linear(x, odd, scale));
  EXPECT_THROW((void)fp8_linear(x, odd, scale, {}, {.quantizes_x = true}), Error);
}

}  // namespace
}  // namespace hone::test
