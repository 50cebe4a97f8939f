// Products of experts whose operands are in e4m3, compared with an independent reference in f64.
#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "ops/quantized_reference.h"
#include "ops/test_run.h"
#include "passes/fp8.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

struct ExpertShape {
  std::vector<std::int32_t> counts;  // rows of each expert
  std::int64_t n, k;
  std::int64_t spare = 0;  // rows that no expert has
  GradientAccumulation sums = GradientAccumulation::kWide;

  [[nodiscard]] std::int64_t experts() const { return static_cast<std::int64_t>(counts.size()); }
  [[nodiscard]] std::int64_t used() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  [[nodiscard]] std::int64_t rows() const { return used() + spare; }
};

Program experts_program(const ExpertShape& shape, Fp8Copies copies = Fp8Copies::kMade) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{shape.rows(), Count::tokens}, shape.k}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {shape.experts() * shape.n, shape.k}});
  const Tensor start = program.input("start", {DType::kI32, {shape.experts() + 1}});
  program.output("y", grouped_linear(x, weight, start, {.experts = shape.experts()}));
  program = with_fp8(program, {"weight"}, true, copies);
  const Tensor y = program.tensor(program.outputs()[0].value);
  const GradientSeed seed{y, program.input("dy", y.type())};
  const Tensor wanted = program.tensor(program.find(Role::kInput, "x"));
  program.output("dx", append_gradients(program, {&seed, 1}, {&wanted, 1}, shape.sums)[0]);
  return program;
}

std::vector<std::int32_t> starts_of(const ExpertShape& shape) {
  std::vector<std::int32_t> start{0};
  for (const std::int32_t count : shape.counts) start.push_back(start.back() + count);
  return start;
}

struct ExpertOperands {
  std::vector<BFloat16> x, weight, dy;
};

ExpertOperands operands_of(const ExpertShape& shape) {
  return {values_of(shape.rows(), shape.k, 1), values_of(shape.experts() * shape.n, shape.k, 2),
          values_of(shape.rows(), shape.n, 6)};
}

// Runs a program of the experts with rows up to those in use.
void run_experts(TestRun& run, const ExpertShape& shape, const ExpertOperands& operands) {
  run.set("x", operands.x);
  run.set("dy", operands.dy);
  run.set("start", starts_of(shape));
  run.set_weight("weight", operands.weight);
  run.executable().set_count(Count::tokens, shape.used());
  run.executable().run();
}

// `count` rows of `width` from `first` on.
template <class T>
std::vector<T> slice(const std::vector<T>& values, std::int64_t first, std::int64_t count, std::int64_t width) {
  return {values.begin() + first * width, values.begin() + (first + count) * width};
}

void expect_experts(const ExpertShape& shape) {
  const std::int64_t n = shape.n;
  const std::int64_t k = shape.k;
  SCOPED_TRACE(text_of(shape.experts(), " experts, ", shape.used(), " of ", shape.rows(), " rows, ", n, " x ", k));
  const ExpertOperands operands = operands_of(shape);
  TestRun run(experts_program(shape));
  run_experts(run, shape, operands);
  const auto y = run.output<BFloat16>("y", static_cast<std::size_t>(shape.rows() * n));
  const auto dx = run.output<BFloat16>("dx", static_cast<std::size_t>(shape.rows() * k));
  const std::vector<std::byte> sums = run.gradient("weight");
  const std::vector<std::int32_t> start = starts_of(shape);
  for (std::int64_t e = 0; e < shape.experts(); ++e) {
    SCOPED_TRACE(text_of("expert ", e));
    const std::int64_t rows = shape.counts[e];
    const Matrix x = widened(slice(operands.x, start[e], rows, k), rows, rows, k);
    const Matrix dy = widened(slice(operands.dy, start[e], rows, n), rows, rows, n);
    const Matrix w = reference_of(widened(slice(operands.weight, e * n, n, k), n, n, k), n, k, 128, 128).values;
    expect_near(slice(y, start[e], rows, n), multiply(reference_of(x, rows, k, 1, 128).values, w, rows, n, k), rows * n,
                1.0 / 256, "y");
    expect_near(slice(dx, start[e], rows, k),
                multiply(reference_of(dy, rows, n, 1, 128).values, transposed(w, n, k), rows, k, n), rows * k,
                1.0 / 256, "dx");
    const Product dw = multiply(reference_of(transposed(dy, rows, n), n, rows, 1, 128).values,
                                reference_of(transposed(x, rows, k), k, rows, 128, 128).values, n, k, rows);
    if (shape.sums == GradientAccumulation::kWide) {
      expect_near(slice(typed<float>(sums), e * n, n, k), dw, n * k, 1e-5, "dW");
    } else {
      expect_near(slice(typed<BFloat16>(sums), e * n, n, k), dw, n * k, 1.0 / 256, "dW");
    }
  }
  for (std::int64_t i = shape.used() * n; i < shape.rows() * n; ++i) ASSERT_EQ(static_cast<float>(y[i]), 0.0F) << i;
  for (std::int64_t i = shape.used() * k; i < shape.rows() * k; ++i) ASSERT_EQ(static_cast<float>(dx[i]), 0.0F) << i;
}

// Columns are those of each expert alone, filled up, one after the other; rows are those of quantize.
void expect_quantized_experts(const std::vector<std::int32_t>& counts, std::int64_t k, std::int64_t spare,
                              bool blocks) {
  SCOPED_TRACE(text_of(counts.size(), " experts, ", k, " columns", blocks ? " in blocks" : ""));
  const ExpertShape shape{counts, 128, k, spare};
  const std::int64_t rows = shape.rows();
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{rows, Count::tokens}, k}});
  const Tensor start = program.input("start", {DType::kI32, {shape.experts() + 1}});
  const QuantizedRows quantized = quantize_experts(x, start, {.experts = shape.experts(), .blocks = blocks});
  const QuantizedRows plain = quantize(x, {});
  const std::pair<const char*, Tensor> outputs[] = {
      {"rows", quantized.rows},   {"row_scale", quantized.row_scale}, {"columns", quantized.columns},
      {"plain rows", plain.rows}, {"plain scale", plain.row_scale},   {"column_scale", quantized.column_scale}};
  for (const auto& [name, tensor] : outputs) program.output(name, tensor);
  const std::int64_t padded = quantized.columns.type().shape[1].size;
  TestRun run(std::move(program));
  const std::vector<BFloat16> values = values_of(rows, k, 3);
  run.set("x", values);
  run.set("start", starts_of(shape));
  run.executable().set_count(Count::tokens, shape.used());
  run.executable().run();
  const auto size = static_cast<std::size_t>(rows * k);
  EXPECT_TRUE(same_bits(run.output<std::uint8_t>("rows", size), run.output<std::uint8_t>("plain rows", size)));
  EXPECT_TRUE(same_bits(run.output<float>("row_scale", size / 128), run.output<float>("plain scale", size / 128)));
  const auto columns = run.output<std::uint8_t>("columns", static_cast<std::size_t>(padded * k));
  const std::int64_t stride = blocks ? weight_scale_stride(padded) : k;
  const auto scales =
      run.output<float>("column_scale", static_cast<std::size_t>(blocks ? k / 128 * stride : padded / 128 * stride));
  std::int64_t first = 0;
  for (std::int64_t e = 0; e < shape.experts(); ++e) {
    const std::int64_t filled = scale_blocks(counts[e]) * 128;
    std::vector<BFloat16> own = slice(values, starts_of(shape)[e], counts[e], k);
    own.resize(static_cast<std::size_t>(filled * k));
    const Reference expected =
        reference_of(transposed(widened(own, filled, counts[e], k), filled, k), k, filled, blocks ? 128 : 1, 128);
    for (std::int64_t column = 0; column < k; ++column) {
      for (std::int64_t row = 0; row < filled; ++row) {
        ASSERT_EQ(columns[column * padded + first + row], expected.bytes[column * filled + row])
            << "expert " << e << ", column " << column << ", row " << row;
      }
      for (std::int64_t block = 0; block < filled / 128; ++block) {
        const std::int64_t place =
            blocks ? column / 128 * stride + first / 128 + block : (first / 128 + block) * stride + column;
        ASSERT_EQ(scales[place], expected.scales[(blocks ? column / 128 : column) * (filled / 128) + block])
            << "expert " << e << ", column " << column << ", block " << block;
      }
    }
    first += filled;
  }
  EXPECT_LE(first, padded);
}

TEST(QuantizeExperts, ColumnsAreThoseOfEachExpert) {
  for (const bool blocks : {false, true}) {
    expect_quantized_experts({16}, 128, 0, blocks);
    expect_quantized_experts({1, 0, 130, 128, 61}, 256, 16, blocks);
    // More experts than lanes of a warp.
    std::vector<std::int32_t> many;
    for (std::int32_t e = 0; e < 40; ++e) many.push_back(e * 7 % 13);
    const ExpertShape shape{many, 128, 128};
    expect_quantized_experts(many, 128, (shape.used() + 15) / 16 * 16 - shape.used(), blocks);
  }
}

// The bytes of a block of columns that has a number which is not finite are 0, its scale is NaN, and other blocks are
// as without it.
TEST(QuantizeExperts, ClearsColumnsThatAreNotFinite) {
  const ExpertShape shape{{20, 140}, 128, 256};
  constexpr std::int64_t kPadded = 384;  // blocks of 20, 128 and 12 rows
  constexpr std::int64_t kRow = 20 + 133, kColumn = 140;
  for (const bool blocks : {false, true}) {
    const std::int64_t stride = blocks ? weight_scale_stride(kPadded) : shape.k;
    const auto results = [&](float value) {
      Program program;
      const Tensor x = program.input("x", {DType::kBf16, {shape.rows(), shape.k}});
      const Tensor start = program.input("start", {DType::kI32, {3}});
      const QuantizedRows quantized = quantize_experts(x, start, {.experts = 2, .blocks = blocks});
      program.output("columns", quantized.columns);
      program.output("column_scale", quantized.column_scale);
      TestRun run(std::move(program));
      std::vector<BFloat16> values = values_of(shape.rows(), shape.k, 1);
      values[kRow * shape.k + kColumn] = BFloat16(value);
      run.set("x", values);
      run.set("start", starts_of(shape));
      run.executable().run();
      std::vector<float> scales = run.output<float>(
          "column_scale", static_cast<std::size_t>((blocks ? shape.k / 128 : kPadded / 128) * stride));
      return std::pair(run.output<std::uint8_t>("columns", static_cast<std::size_t>(kPadded * shape.k)), scales);
    };
    auto [columns, scales] = results(0.0F);
    for (std::int64_t column = blocks ? 128 : kColumn; column < (blocks ? 256 : kColumn + 1); ++column) {
      std::fill_n(columns.begin() + column * kPadded + 256, 128, std::uint8_t{0});
    }
    scales[static_cast<std::size_t>(blocks ? stride + 2 : 2 * stride + kColumn)] =
        std::numeric_limits<float>::quiet_NaN();
    for (const float value : {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const auto seen = results(value);
      EXPECT_EQ(seen.first, columns) << value << ", blocks " << blocks;
      EXPECT_TRUE(same_bits(seen.second, scales)) << value << ", blocks " << blocks;
    }
  }
}

TEST(ScaledGroupedLinear, HasTheProductsOfTheQuantizedOperands) {
  expect_experts({{16}, 128, 128});
  expect_experts({{5, 0, 27}, 128, 256});
  expect_experts({{0, 200, 1, 71, 0}, 256, 128, 48});
  expect_experts({{70, 33, 9}, 256, 384, 0, GradientAccumulation::kAsWeights});
  if (test_device().kind() == DeviceKind::kCpu) return;
  // Several tiles of tokens and more tiles than a GPU has processors.
  expect_experts({{700, 1, 900, 15, 0, 192, 193, 47}, 1408, 512, 128});
  // Gradients of few tokens whose last tiles of rows are half empty, several for a processor.
  expect_experts({{130, 1, 90, 15, 0, 60, 3, 47}, 1408, 1024, 6, GradientAccumulation::kAsWeights});
  // Tokens as rows: tiles of one block of W, and experts whose tokens begin anywhere.
  expect_experts({{130, 65, 3, 191}, 128, 512, 11});
  expect_experts({{61, 3, 256, 64}, 384, 1024});
}

void expect_independent_rows(const ExpertShape& all) {
  const ExpertOperands operands = operands_of(all);
  TestRun together(experts_program(all));
  run_experts(together, all, operands);
  const auto y = together.output<BFloat16>("y", static_cast<std::size_t>(all.rows() * all.n));
  const auto dx = together.output<BFloat16>("dx", static_cast<std::size_t>(all.rows() * all.k));
  const std::vector<std::int32_t> start = starts_of(all);
  for (const std::int64_t part : {1, 2, 3}) {
    // The first rows of each expert, a part of them.
    ExpertShape some{{}, all.n, all.k};
    ExpertOperands few{{}, operands.weight, {}};
    for (std::int64_t e = 0; e < all.experts(); ++e) {
      some.counts.push_back(static_cast<std::int32_t>(all.counts[e] / part));
      const auto add = [&](std::vector<BFloat16>& to, const std::vector<BFloat16>& from, std::int64_t width) {
        const std::vector<BFloat16> rows = slice(from, start[e], some.counts.back(), width);
        to.insert(to.end(), rows.begin(), rows.end());
      };
      add(few.x, operands.x, all.k);
      add(few.dy, operands.dy, all.n);
    }
    some.spare = (some.used() + 15) / 16 * 16 - some.used();
    few.x.resize(static_cast<std::size_t>(some.rows() * some.k));
    few.dy.resize(static_cast<std::size_t>(some.rows() * some.n));
    TestRun run(experts_program(some));
    run_experts(run, some, few);
    const auto few_y = run.output<BFloat16>("y", few.dy.size());
    const auto few_dx = run.output<BFloat16>("dx", few.x.size());
    const std::vector<std::int32_t> first = starts_of(some);
    for (std::int64_t e = 0; e < all.experts(); ++e) {
      const std::int64_t rows = some.counts[e];
      EXPECT_TRUE(same_bits(slice(few_y, first[e], rows, all.n), slice(y, start[e], rows, all.n))) << part << ", " << e;
      EXPECT_TRUE(same_bits(slice(few_dx, first[e], rows, all.k), slice(dx, start[e], rows, all.k)))
          << part << ", " << e;
    }
  }
}

// A row has the same bits whatever the other rows are: in a tile of other columns, at another place, and on a GPU with
// tokens as the rows of a tile (all of the second) or as its columns.
TEST(ScaledGroupedLinear, RowsDoNotDependOnOthers) {
  expect_independent_rows({{1, 24, 0, 199, 200, 72}, 256, 384});
  expect_independent_rows({{1, 24, 0, 199, 200, 72}, 256, 640});
}

// The weight gradient accumulates, in both types; that of an expert without rows stays.
TEST(ScaledGroupedLinear, AccumulatesAndRepeats) {
  for (const GradientAccumulation type : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
    const ExpertShape shape{{40, 0, 24}, 128, 256, 0, type};
    TestRun once(experts_program(shape));
    TestRun twice(experts_program(shape));
    run_experts(once, shape, operands_of(shape));
    run_experts(twice, shape, operands_of(shape));
    EXPECT_TRUE(once.gradient("weight") == twice.gradient("weight"));
    twice.executable().run();
    const auto values = [&](const std::vector<std::byte>& bytes) {
      std::vector<float> read;
      if (type == GradientAccumulation::kWide) return typed<float>(bytes);
      for (const BFloat16 value : typed<BFloat16>(bytes)) read.push_back(float(value));
      return read;
    };
    const std::vector<float> first = values(once.gradient("weight"));
    const std::vector<float> sum = values(twice.gradient("weight"));
    const float tolerance = type == GradientAccumulation::kWide ? 1e-4F : 1e-2F;
    for (std::size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(sum[i], 2 * first[i], tolerance * (1 + std::fabs(first[i]))) << i;
    const auto matrix = static_cast<std::ptrdiff_t>(shape.n * shape.k);
    const auto is_zero = [](float value) { return value == 0; };
    EXPECT_TRUE(std::all_of(sum.begin() + matrix, sum.begin() + 2 * matrix, is_zero));
    EXPECT_FALSE(std::all_of(sum.begin(), sum.begin() + matrix, is_zero));
  }
}

TEST(ScaledGroupedLinear, KeptCopiesOfWeightsChangeNoBit) {
  const ExpertShape shape{{40, 9, 15}, 128, 256};
  const auto results = [&](Fp8Copies copies) {
    Program program = experts_program(shape, copies);
    const auto quantized =
        std::ranges::count_if(program.nodes(), [](const Node& node) { return node.op->name() == "quantize_weight"; });
    EXPECT_EQ(quantized, copies == Fp8Copies::kKept ? 1 : 2);
    TestRun run(std::move(program));
    run_experts(run, shape, operands_of(shape));
    return run.output<BFloat16>("dx", static_cast<std::size_t>(shape.rows() * shape.k));
  };
  EXPECT_TRUE(same_bits(results(Fp8Copies::kKept), results(Fp8Copies::kMade)));
}

// Rows that no expert has are 0, even where the count of tokens includes them.
TEST(ScaledGroupedLinear, ClearsRowsThatNoExpertHas) {
  const ExpertShape all{{30, 34}, 128, 256};
  const ExpertShape some{{30, 7}, 128, 256, 27};
  TestRun run(experts_program(all));
  run_experts(run, all, operands_of(all));
  run.set("start", starts_of(some));
  run.executable().run();
  const auto y = run.output<BFloat16>("y", static_cast<std::size_t>(all.rows() * all.n));
  const auto dx = run.output<BFloat16>("dx", static_cast<std::size_t>(all.rows() * all.k));
  for (std::int64_t i = some.used() * all.n; i < all.rows() * all.n; ++i)
    ASSERT_EQ(static_cast<float>(y[i]), 0.0F) << i;
  for (std::int64_t i = some.used() * all.k; i < all.rows() * all.k; ++i)
    ASSERT_EQ(static_cast<float>(dx[i]), 0.0F) << i;
}

// A number that is not finite reaches the rows of its token, and no other; and of dW of its expert, that of x the
// columns of its block and that of dy its row.
TEST(ScaledGroupedLinear, KeepsWhatIsNotFinite) {
  const ExpertShape shape{{20, 12}, 128, 256};
  ExpertOperands operands = operands_of(shape);
  operands.x[3 * shape.k + 7] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  operands.dy[25 * shape.n + 90] = BFloat16(std::numeric_limits<float>::infinity());
  TestRun run(experts_program(shape));
  run_experts(run, shape, operands);
  const auto y = run.output<BFloat16>("y", static_cast<std::size_t>(shape.rows() * shape.n));
  const auto dx = run.output<BFloat16>("dx", static_cast<std::size_t>(shape.rows() * shape.k));
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    EXPECT_EQ(std::isnan(static_cast<float>(y[row * shape.n + 5])), row == 3) << "row " << row;
    EXPECT_EQ(std::isnan(static_cast<float>(dx[row * shape.k + 5])), row == 25) << "row " << row;
  }
  const std::vector<float> dw = typed<float>(run.gradient("weight"));
  for (std::int64_t row = 0; row < 2 * shape.n; ++row) {
    for (std::int64_t column = 0; column < shape.k; ++column) {
      const bool of_x = row < shape.n && column < 128;
      ASSERT_EQ(std::isnan(dw[row * shape.k + column]), of_x || row == shape.n + 90) << row << ", " << column;
    }
  }
}

TEST(ScaledGroupedLinear, ChecksTypes) {
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {32, 256}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {4 * 128, 256}});
  const Tensor start = program.input("start", {DType::kI32, {5}});
  const QuantizedRows rows = quantize(x, {});
  const QuantizedWeight copy = quantize_weight(weight).plain;
  EXPECT_EQ(scaled_grouped_linear(rows, copy, start, {.experts = 4}, {.weight = weight}).type(),
            (Type{DType::kBf16, {32, 128}}));
  EXPECT_THROW((void)scaled_grouped_linear(rows, copy, start, {.experts = 3}, {}), Error);
  EXPECT_THROW((void)scaled_grouped_linear(rows, copy, start, {.experts = 8}, {}), Error);
  EXPECT_THROW((void)scaled_grouped_linear(rows, quantize_weight(weight, {.transposed = true}).transposed, start,
                                           {.experts = 4}, {}),
               Error);
  EXPECT_THROW((void)scaled_grouped_linear(rows, copy, start, {.experts = 4}, {.weight = x}), Error);
  EXPECT_THROW((void)quantize_experts(x, start, {.experts = 3}), Error);
}

}  // namespace
}  // namespace hone::test
