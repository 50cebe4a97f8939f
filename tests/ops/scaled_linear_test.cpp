// Quantization to e4m3 and products of quantized operands, compared with an independent reference in f64. Bytes and
// scales have to be the same in every bit on every device.
#include "ops/scaled_linear/scaled_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/float8.h"
#include "ops/linear/linear.h"
#include "ops/quantized_reference.h"
#include "ops/test_run.h"
#include "passes/fp8.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

// Scales by block of rows and then of columns, as [columns / 128, rows].
std::vector<float> by_columns(const std::vector<float>& scales, std::int64_t rows) {
  const auto across = static_cast<std::int64_t>(scales.size()) / rows;
  std::vector<float> result(scales.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t block = 0; block < across; ++block) result[block * rows + row] = scales[row * across + block];
  }
  return result;
}

// Scales of blocks of 128 x 128 as [rows / 128, stride], 1 where a row has no more.
std::vector<float> with_stride(const std::vector<float>& scales, std::int64_t blocks, std::int64_t stride) {
  const auto rows = static_cast<std::int64_t>(scales.size()) / blocks;
  std::vector<float> result(static_cast<std::size_t>(rows * stride), 1.0F);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t block = 0; block < blocks; ++block) result[row * stride + block] = scales[row * blocks + block];
  }
  return result;
}

void expect_quantized(std::int64_t rows, std::int64_t used, std::int64_t k, bool blocks) {
  SCOPED_TRACE(text_of(used, " of ", rows, " x ", k, blocks ? " in blocks" : ""));
  Program program;
  const QuantizedRows quantized =
      quantize(program.input("x", {DType::kBf16, {{rows, Count::tokens}, k}}), {.columns = true, .blocks = blocks});
  program.output("rows", quantized.rows);
  program.output("row_scale", quantized.row_scale);
  program.output("columns", quantized.columns);
  program.output("column_scale", quantized.column_scale);
  TestRun run(std::move(program));
  const std::vector<BFloat16> x = values_of(rows, k, 3);
  run.set("x", x);
  run.executable().set_count(Count::tokens, used);
  run.executable().run();
  const Matrix wide = widened(x, rows, used, k);
  const Reference by_row = reference_of(wide, rows, k, 1, 128);
  const Reference by_column = reference_of(transposed(wide, rows, k), k, rows, blocks ? 128 : 1, 128);
  const std::size_t size = x.size();
  EXPECT_TRUE(same_bits(run.output<std::uint8_t>("rows", size), by_row.bytes));
  EXPECT_TRUE(same_bits(run.output<float>("row_scale", by_row.scales.size()), by_columns(by_row.scales, rows)));
  EXPECT_TRUE(same_bits(run.output<std::uint8_t>("columns", size), by_column.bytes));
  const std::vector<float> column_scales =
      blocks ? with_stride(by_column.scales, scale_blocks(rows), weight_scale_stride(rows))
             : by_columns(by_column.scales, k);
  EXPECT_TRUE(same_bits(run.output<float>("column_scale", column_scales.size()), column_scales));
}

TEST(Quantize, HasTheNearestNumbersAndTheLeastScales) {
  for (const bool blocks : {false, true}) {
    expect_quantized(16, 16, 128, blocks);
    expect_quantized(128, 128, 256, blocks);
    expect_quantized(144, 131, 384, blocks);
    expect_quantized(400, 257, 640, blocks);
    expect_quantized(256, 1, 128, blocks);
  }
}

TEST(Quantize, MagnitudesFromTheLeastToTheLargest) {
  Program program;
  const QuantizedRows quantized = quantize(program.input("x", {DType::kBf16, {32, 128}}), {});
  program.output("rows", quantized.rows);
  program.output("row_scale", quantized.row_scale);
  TestRun run(std::move(program));
  std::vector<BFloat16> x(32 * 128);
  for (int row = 0; row < 32; ++row) x[row * 128 + 5] = BFloat16(std::ldexp(1.75F, 8 * row - 126));
  x[31 * 128 + 5] = BFloat16(std::numeric_limits<float>::max() * 0.99F);
  run.set("x", x);
  run.executable().run();
  const std::vector<float> scales = run.output<float>("row_scale", 32);
  const std::vector<std::uint8_t> bytes = run.output<std::uint8_t>("rows", x.size());
  for (int row = 0; row < 32; ++row) {
    const double value = static_cast<double>(static_cast<float>(x[row * 128 + 5]));
    EXPECT_EQ(static_cast<double>(scales[row]), reference_scale(std::span(&value, 1))) << "row " << row;
    EXPECT_EQ(bytes[row * 128 + 5], reference_byte(value / static_cast<double>(scales[row]))) << "row " << row;
  }
}

// A number that is not finite makes its block's results NaN, and no other.
TEST(Quantize, KeepsWhatIsNotFinite) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {16, 256}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {128, 256}});
  program.output("y", scaled_linear(quantize(x, {}), quantize_weight(weight).plain, {}, {}));
  TestRun run(std::move(program));
  std::vector<BFloat16> values = values_of(16, 256, 1);
  values[3 * 256 + 7] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  values[9 * 256 + 200] = BFloat16(-std::numeric_limits<float>::infinity());
  run.set("x", values);
  run.set_weight("weight", values_of(128, 256, 2));
  run.executable().run();
  const std::vector<BFloat16> y = run.output<BFloat16>("y", 16 * 128);
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t i = 0; i < 128; ++i) {
      EXPECT_EQ(std::isnan(static_cast<float>(y[row * 128 + i])), row == 3 || row == 9) << "row " << row;
    }
  }
}

// The bytes of such a block are 0, its scale is NaN, and other blocks are as without it.
TEST(Quantize, ClearsBlocksThatAreNotFinite) {
  constexpr std::int64_t kRows = 144;
  constexpr std::int64_t kColumns = 256;
  constexpr std::int64_t kRow = 133;
  constexpr std::int64_t kColumn = 140;
  for (const bool blocks : {false, true}) {
    const auto results = [&](float value) {
      Program program;
      const QuantizedRows quantized =
          quantize(program.input("x", {DType::kBf16, {kRows, kColumns}}), {.columns = true, .blocks = blocks});
      program.output("rows", quantized.rows);
      program.output("columns", quantized.columns);
      program.output("row_scale", quantized.row_scale);
      program.output("column_scale", quantized.column_scale);
      TestRun run(std::move(program));
      std::vector<BFloat16> x = values_of(kRows, kColumns, 1);
      x[kRow * kColumns + kColumn] = BFloat16(value);
      run.set("x", x);
      run.executable().run();
      const std::int64_t scales = blocks ? kColumns / 128 * weight_scale_stride(kRows) : scale_blocks(kRows) * kColumns;
      return std::tuple(run.output<std::uint8_t>("rows", x.size()), run.output<std::uint8_t>("columns", x.size()),
                        run.output<float>("row_scale", x.size() / 128),
                        run.output<float>("column_scale", static_cast<std::size_t>(scales)));
    };
    auto [rows, columns, row_scale, column_scale] = results(0.0F);
    std::fill_n(rows.begin() + kRow * kColumns + 128, 128, std::uint8_t{0});
    row_scale[kRows + kRow] = std::numeric_limits<float>::quiet_NaN();
    const std::int64_t first = blocks ? 128 : kColumn;
    for (std::int64_t column = first; column < first + (blocks ? 128 : 1); ++column) {
      std::fill_n(columns.begin() + column * kRows + 128, kRows - 128, std::uint8_t{0});
    }
    column_scale[blocks ? weight_scale_stride(kRows) + 1 : kColumns + kColumn] =
        std::numeric_limits<float>::quiet_NaN();
    const auto seen = results(-std::numeric_limits<float>::infinity());
    EXPECT_EQ(std::get<0>(seen), rows) << "blocks " << blocks;
    EXPECT_EQ(std::get<1>(seen), columns) << "blocks " << blocks;
    EXPECT_TRUE(same_bits(std::get<2>(seen), row_scale)) << "blocks " << blocks;
    EXPECT_TRUE(same_bits(std::get<3>(seen), column_scale)) << "blocks " << blocks;
  }
}

void expect_weight(std::int64_t n, std::int64_t k) {
  SCOPED_TRACE(text_of(n, " x ", k));
  Program program;
  const Tensor weight = program.weight("weight", {DType::kBf16, {n, k}});
  const QuantizedWeight plain = quantize_weight(weight).plain;
  const QuantizedWeight turned = quantize_weight(weight, {.plain = false, .transposed = true}).transposed;
  const QuantizedWeights both = quantize_weight(weight, {.transposed = true});
  const auto output = [&](const std::string& name, const QuantizedWeight& quantized) {
    program.output(name, quantized.weight);
    program.output(name + "_scale", quantized.scale);
  };
  output("plain", plain);
  output("turned", turned);
  output("plain of both", both.plain);
  output("turned of both", both.transposed);
  TestRun run(std::move(program));
  const std::vector<BFloat16> values = values_of(n, k, 5);
  run.set_weight("weight", values);
  run.executable().run();
  const auto expect = [&](const std::string& name, const Matrix& wide, std::int64_t rows, std::int64_t columns) {
    const Reference reference = reference_of(wide, rows, columns, 128, 128);
    EXPECT_TRUE(same_bits(run.output<std::uint8_t>(name, wide.size()), reference.bytes)) << name;
    const std::int64_t stride = weight_scale_stride(columns);
    const auto scales = run.output<float>(name + "_scale", static_cast<std::size_t>(rows / 128 * stride));
    for (std::int64_t row = 0; row < rows / 128; ++row) {
      for (std::int64_t column = 0; column < stride; ++column) {
        const float wanted = column < columns / 128 ? reference.scales[row * (columns / 128) + column] : 1.0F;
        EXPECT_EQ(scales[row * stride + column], wanted) << name << " block " << row << ", " << column;
      }
    }
  };
  const Matrix wide = widened(values, n, n, k);
  expect("plain", wide, n, k);
  expect("turned", transposed(wide, n, k), k, n);
  expect("plain of both", wide, n, k);
  expect("turned of both", transposed(wide, n, k), k, n);
}

TEST(Quantize, Weights) {
  expect_weight(128, 128);
  expect_weight(256, 640);
}

struct LayerShape {
  std::int64_t rows, used, n, k;
  bool bias;
  GradientAccumulation sums = GradientAccumulation::kWide;
};

Program layer_program(const LayerShape& shape, bool keeps = false) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{shape.rows, Count::tokens}, shape.k}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {shape.n, shape.k}});
  const Tensor bias = shape.bias ? program.weight("bias", {DType::kBf16, {shape.n}}) : Tensor();
  program.output("y", linear(x, weight, bias));
  program = with_fp8(program, {"weight"}, true, keeps ? Fp8Copies::kKept : Fp8Copies::kMade);
  const Tensor y = program.tensor(program.outputs()[0].value);
  const Tensor dy = program.input("dy", y.type());
  const GradientSeed seed{y, dy};
  const Tensor wanted = program.tensor(program.find(Role::kInput, "x"));
  const std::vector<Tensor> gradients = append_gradients(program, {&seed, 1}, {&wanted, 1}, shape.sums);
  program.output("dx", gradients[0]);
  return program;
}

void expect_layer(const LayerShape& shape) {
  const auto [rows, used, n, k, has_bias, sums] = shape;
  SCOPED_TRACE(text_of(used, " of ", rows, " rows, ", n, " x ", k));
  TestRun run(layer_program(shape));
  const std::vector<BFloat16> x = values_of(rows, k, 1);
  const std::vector<BFloat16> weight = values_of(n, k, 2);
  const std::vector<BFloat16> dy = values_of(rows, n, 6);
  const std::vector<BFloat16> bias = normal_values<BFloat16>(static_cast<std::size_t>(n), 9);
  run.set("x", x);
  run.set("dy", dy);
  run.set_weight("weight", weight);
  if (has_bias) run.set_weight("bias", bias);
  run.executable().set_count(Count::tokens, used);
  run.executable().run();

  const Matrix wide_x = widened(x, rows, used, k);
  const Matrix wide_dy = widened(dy, rows, used, n);
  const Matrix w = reference_of(widened(weight, n, n, k), n, k, 128, 128).values;
  Product y = multiply(reference_of(wide_x, rows, k, 1, 128).values, w, rows, n, k);
  for (std::int64_t i = 0; has_bias && i < rows * n; ++i) {
    y.values[i] += static_cast<double>(static_cast<float>(bias[i % n]));
  }
  const Product dx = multiply(reference_of(wide_dy, rows, n, 1, 128).values, transposed(w, n, k), rows, k, n);
  const Product dw = multiply(reference_of(transposed(wide_dy, rows, n), n, rows, 1, 128).values,
                              reference_of(transposed(wide_x, rows, k), k, rows, 128, 128).values, n, k, rows);
  expect_near(run.output<BFloat16>("y", x.size() / k * n), y, used * n, 1.0 / 256, "y");
  expect_near(run.output<BFloat16>("dx", x.size()), dx, rows * k, 1.0 / 256, "dx");
  if (sums == GradientAccumulation::kWide) {
    expect_near(typed<float>(run.gradient("weight")), dw, n * k, 1e-5, "dW");
  } else {
    expect_near(typed<BFloat16>(run.gradient("weight")), dw, n * k, 1.0 / 256, "dW");
  }
  if (!has_bias) return;
  const std::vector<float> dbias = typed<float>(run.gradient("bias"));
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::int64_t row = 0; row < used; ++row) sum += wide_dy[row * n + i];
    EXPECT_NEAR(dbias[i], sum, 1e-4 * (1 + std::fabs(sum)));
  }
}

TEST(ScaledLinear, HasTheProductsOfTheQuantizedOperands) {
  expect_layer({16, 16, 128, 128, false});
  expect_layer({128, 128, 256, 384, true});
  expect_layer({144, 101, 128, 256, true});
  expect_layer({272, 272, 384, 128, false, GradientAccumulation::kAsWeights});
}

TEST(ScaledLinear, KeptCopiesOfWeightsChangeNoBit) {
  const auto results = [](bool keeps) {
    Program program = layer_program({64, 50, 128, 256, false}, keeps);
    const auto quantized =
        std::ranges::count_if(program.nodes(), [](const Node& node) { return node.op->name() == "quantize_weight"; });
    EXPECT_EQ(quantized, keeps ? 1 : 2);
    TestRun run(std::move(program));
    run.set("x", values_of(64, 256, 1));
    run.set("dy", values_of(64, 128, 6));
    run.set_weight("weight", values_of(128, 256, 2));
    run.executable().set_count(Count::tokens, 50);
    run.executable().run();
    return run.output<BFloat16>("dx", 50 * 256);
  };
  EXPECT_TRUE(same_bits(results(true), results(false)));
}

// On a GPU tiles of several shapes multiply, whichever take the least time: layers of few rows and of few outputs have
// the bits of those that they are a part of.
TEST(ScaledLinear, HasTheSameBitsInAnyTiles) {
  if (test_device().kind() != DeviceKind::kCuda) GTEST_SKIP() << "a CPU has one kernel";
  constexpr std::int64_t kRows = 1536, kN = 2048, kK = 2048, kPart = 128;
  struct Results {
    std::vector<BFloat16> y, dx, dw;
  };
  const std::vector<BFloat16> x = values_of(kRows, kK, 1);
  const std::vector<BFloat16> weight = values_of(kN, kK, 2);
  const std::vector<BFloat16> dy = values_of(kRows, kN, 6);
  const auto results = [&](std::int64_t rows, std::int64_t n) {
    TestRun run(layer_program({rows, rows, n, kK, false, GradientAccumulation::kAsWeights}));
    std::vector<BFloat16> own_dy;
    for (std::int64_t row = 0; row < rows; ++row) {
      own_dy.insert(own_dy.end(), dy.begin() + row * kN, dy.begin() + row * kN + n);
    }
    run.set("x", std::vector<BFloat16>(x.begin(), x.begin() + rows * kK));
    run.set("dy", own_dy);
    run.set_weight("weight", std::vector<BFloat16>(weight.begin(), weight.begin() + n * kK));
    run.executable().set_count(Count::tokens, rows);
    run.executable().run();
    run.executable().run();  // adds to the gradient of the first
    return Results{run.output<BFloat16>("y", static_cast<std::size_t>(rows * n)),
                   run.output<BFloat16>("dx", static_cast<std::size_t>(rows * kK)),
                   typed<BFloat16>(run.gradient("weight"))};
  };
  const Results all = results(kRows, kN);
  const Results rows = results(kPart, kN);
  const Results columns = results(kRows, kPart);
  EXPECT_TRUE(same_bits(rows.y, {all.y.begin(), all.y.begin() + kPart * kN}));
  EXPECT_TRUE(same_bits(rows.dx, {all.dx.begin(), all.dx.begin() + kPart * kK}));
  EXPECT_TRUE(same_bits(columns.dw, {all.dw.begin(), all.dw.begin() + kPart * kK}));
}

// The weight gradient accumulates, and a run gives the same bits as the one before.
TEST(ScaledLinear, AccumulatesAndRepeats) {
  TestRun once(layer_program({64, 50, 128, 256, false}));
  TestRun twice(layer_program({64, 50, 128, 256, false}));
  for (TestRun* run : {&once, &twice}) {
    run->set("x", values_of(64, 256, 1));
    run->set("dy", values_of(64, 128, 6));
    run->set_weight("weight", values_of(128, 256, 2));
    run->executable().set_count(Count::tokens, 50);
    run->executable().run();
  }
  EXPECT_TRUE(same_bits(once.gradient("weight"), twice.gradient("weight")));
  EXPECT_TRUE(same_bits(once.output<BFloat16>("dx", 50 * 256), twice.output<BFloat16>("dx", 50 * 256)));
  twice.executable().run();
  const std::vector<float> first = typed<float>(once.gradient("weight"));
  const std::vector<float> sum = typed<float>(twice.gradient("weight"));
  // The second run rounds after each term that it adds to the first one's sum.
  for (std::size_t i = 0; i < sum.size(); ++i) {
    ASSERT_NEAR(sum[i], 2 * first[i], 1e-4 * (1 + std::fabs(first[i]))) << i;
  }
}

TEST(ScaledLinear, SharesTheQuantizedCopyOfAnInput) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{32, Count::tokens}, 128}});
  program.output("a", linear(x, program.weight("a", {DType::kBf16, {128, 128}})));
  program.output("b", linear(x, program.weight("b", {DType::kBf16, {256, 128}}, false)));
  program.output("c", linear(x, program.weight("c", {DType::kBf16, {128, 128}})));
  const auto count = [](const Program& in, std::string_view op) {
    return std::ranges::count_if(in.nodes(), [&](const Node& node) { return node.op->name() == op; });
  };
  const Program training = with_fp8(program, {"a", "b"}, true);
  EXPECT_EQ(count(training, "quantize"), 1);
  EXPECT_EQ(count(training, "quantize_weight"), 2);
  EXPECT_EQ(count(training, "scaled_linear"), 2);
  EXPECT_EQ(count(training, "linear"), 1);
  const auto columns = [](const Program& in) {
    const auto node = std::ranges::find_if(in.nodes(), [](const Node& each) { return each.op->name() == "quantize"; });
    return node->attributes.as<QuantizeAttributes>().columns;
  };
  EXPECT_TRUE(columns(training));
  EXPECT_FALSE(columns(with_fp8(program, {"b"}, true)));
  EXPECT_FALSE(columns(with_fp8(program, {"a", "b"}, false)));
}

TEST(ScaledLinear, ChecksTypes) {
  Program program;
  EXPECT_THROW((void)quantize(program.input("f32", {DType::kF32, {16, 128}}), {}), Error);
  EXPECT_THROW((void)quantize(program.input("k", {DType::kBf16, {16, 130}}), {}), Error);
  EXPECT_THROW((void)quantize(program.input("rows", {DType::kBf16, {17, 128}}), {}), Error);
  EXPECT_THROW((void)quantize_weight(program.weight("none", {DType::kBf16, {128, 128}}), {.plain = false}), Error);
  EXPECT_THROW((void)quantize_weight(program.weight("odd", {DType::kBf16, {130, 128}})), Error);
  const Tensor wide = program.weight("wide", {DType::kBf16, {128, 256}});
  const Tensor bytes = program.state("bytes", {DType::kU8, {128, 256}});
  EXPECT_NO_THROW(quantize_weight_into(wide, {.plain = {bytes, program.state("scale", {DType::kF32, {1, 4}})}}));
  EXPECT_THROW(quantize_weight_into(wide, {.plain = {bytes, program.state("short", {DType::kF32, {1, 2}})}}), Error);
  const QuantizedRows x = quantize(program.input("x", {DType::kBf16, {16, 128}}), {});
  const Tensor weight = program.weight("weight", {DType::kBf16, {256, 128}});
  EXPECT_EQ(scaled_linear(x, quantize_weight(weight).plain, {}, weight).type(), (Type{DType::kBf16, {16, 256}}));
  EXPECT_THROW((void)scaled_linear(x, quantize_weight(weight, {.transposed = true}).transposed, {}, {}), Error);
  EXPECT_THROW((void)scaled_linear(x, quantize_weight(weight).plain, program.weight("bias", {DType::kF32, {256}}), {}),
               Error);
}

}  // namespace
}  // namespace hone::test
