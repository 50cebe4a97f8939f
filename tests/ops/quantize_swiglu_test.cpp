// Swiglu fused with the quantization of its result, and of its gradient, has the bits of the two operations.
#include "ops/quantize_swiglu/quantize_swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/swiglu/swiglu.h"
#include "ops/test_run.h"
#include "passes/fp8.h"
#include "passes/fusion.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

struct MlpShape {
  std::int64_t rows, used, n;  // gate_up is [rows, 2 n]
};

// down(swiglu(gate_up(x))) for x [rows, 128], and its gradients for "dy"; fused in both passes if `fused`.
Program mlp(const MlpShape& shape, bool fused) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{shape.rows, Count::tokens}, 128}});
  const Tensor up = program.weight("gate_up", {DType::kBf16, {2 * shape.n, 128}});
  const Tensor down = program.weight("down", {DType::kBf16, {128, shape.n}});
  program.output("y", linear(swiglu(linear(x, up)), down));
  program = with_fp8(program, {"gate_up", "down"}, true);
  if (fused) program = fuse(program);
  const Tensor y = program.tensor(program.outputs()[0].value);
  const GradientSeed seed{y, program.input("dy", y.type())};
  const Tensor wanted = program.tensor(program.find(Role::kInput, "x"));
  program.output("dx", append_gradients(program, {&seed, 1}, {&wanted, 1})[0]);
  return fused ? fuse(program) : program;
}

bool has(const Program& program, std::string_view op) {
  return std::ranges::any_of(program.nodes(), [&](const Node& node) { return node.op->name() == op; });
}

std::vector<std::vector<std::byte>> results(const MlpShape& shape, bool fused) {
  TestRun run(mlp(shape, fused));
  run.set("x", normal_values<BFloat16>(static_cast<std::size_t>(shape.rows * 128), 1));
  run.set("dy", normal_values<BFloat16>(static_cast<std::size_t>(shape.rows * 128), 2));
  run.set_weight("gate_up", normal_values<BFloat16>(static_cast<std::size_t>(2 * shape.n * 128), 3));
  run.set_weight("down", normal_values<BFloat16>(static_cast<std::size_t>(shape.n * 128), 4));
  run.executable().set_count(Count::tokens, shape.used);
  run.executable().run();
  const auto bytes_of = [&](std::string_view name) {
    const std::vector<BFloat16> values = run.output<BFloat16>(name, static_cast<std::size_t>(shape.used * 128));
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  return {bytes_of("y"), bytes_of("dx"), run.gradient("gate_up"), run.gradient("down")};
}

TEST(QuantizeSwiglu, HasTheBitsOfItsParts) {
  const Program fused = mlp({16, 16, 128}, true);
  EXPECT_TRUE(has(fused, "quantize_swiglu"));
  EXPECT_TRUE(has(fused, "quantize_swiglu_backward"));
  EXPECT_FALSE(has(fused, "swiglu"));
  EXPECT_FALSE(has(fused, "swiglu_backward"));
  for (const MlpShape& shape : {MlpShape{16, 16, 128}, MlpShape{144, 130, 384}, MlpShape{256, 100, 256}}) {
    EXPECT_EQ(results(shape, true), results(shape, false)) << shape.rows << " rows, " << shape.n << " columns";
  }
}

// The outputs of quantize for swiglu of gate_up [rows, 2 n], or for its gradient.
Program quantized_swiglu(const MlpShape& shape, const QuantizeAttributes& attributes, bool backward, bool fused) {
  register_operations();
  Program program;
  const Tensor gate_up = program.input("gate_up", {DType::kBf16, {{shape.rows, Count::tokens}, 2 * shape.n}});
  const Tensor made =
      backward ? swiglu_gradient(program.input("dy", {DType::kBf16, {{shape.rows, Count::tokens}, shape.n}}), gate_up)
               : swiglu(gate_up);
  const QuantizedRows quantized = quantize(made, attributes);
  program.output("rows", quantized.rows);
  program.output("row_scale", quantized.row_scale);
  if (quantized.columns) program.output("columns", quantized.columns);
  if (quantized.column_scale) program.output("column_scale", quantized.column_scale);
  return fused ? fuse(program) : program;
}

// Normal numbers, among them gates whose exponential is subnormal or 0, or overflows, and numbers that are not finite.
std::vector<BFloat16> far_values(const MlpShape& shape, std::int64_t columns, std::uint64_t seed) {
  std::vector<BFloat16> values = normal_values<BFloat16>(static_cast<std::size_t>(shape.rows * columns), seed);
  const float far[] = {-86.5F, -87.0F, -87.5F, -90.0F, -103.5F, -200.0F, -3e38F, 88.0F, 120.0F, 3e38F, 0.0F, -0.0F};
  for (std::size_t i = 0; i < std::size(far); ++i) values[i * 977 % values.size()] = BFloat16(far[i]);
  values[5 * columns + 3] = BFloat16(-std::numeric_limits<float>::infinity());
  values[9 * columns + 100] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  return values;
}

TEST(QuantizeSwiglu, HasTheBitsOfItsPartsFarFromZero) {
  const MlpShape shape{144, 130, 256};
  const auto results = [&](const QuantizeAttributes& attributes, bool backward, bool fused) {
    TestRun run(quantized_swiglu(shape, attributes, backward, fused));
    run.set("gate_up", far_values(shape, 2 * shape.n, 1));
    if (backward) run.set("dy", far_values(shape, shape.n, 2));
    run.executable().set_count(Count::tokens, shape.used);
    run.executable().run();
    const std::int64_t k = (backward ? 2 : 1) * shape.n;
    const auto size = static_cast<std::size_t>(shape.rows * k);
    std::vector<std::uint8_t> bytes = run.output<std::uint8_t>("rows", size);
    std::vector<float> scales = run.output<float>("row_scale", size / 128);
    if (attributes.columns) {
      const std::vector<std::uint8_t> columns = run.output<std::uint8_t>("columns", size);
      bytes.insert(bytes.end(), columns.begin(), columns.end());
      const std::int64_t count = attributes.blocks ? k / 128 * weight_scale_stride(shape.rows) : 2 * k;
      const std::vector<float> more = run.output<float>("column_scale", static_cast<std::size_t>(count));
      scales.insert(scales.end(), more.begin(), more.end());
    }
    EXPECT_TRUE(std::ranges::any_of(scales, [](float scale) { return std::isnan(scale); }));
    return std::pair(bytes, scales);
  };
  for (const bool backward : {false, true}) {
    for (const QuantizeAttributes& attributes :
         {QuantizeAttributes{}, {.columns = true}, QuantizeAttributes{.columns = true, .blocks = true}}) {
      const auto fused = results(attributes, backward, true);
      const auto parts = results(attributes, backward, false);
      EXPECT_EQ(fused.first, parts.first) << "backward " << backward << ", columns " << attributes.columns;
      EXPECT_TRUE(same_bits(fused.second, parts.second)) << "backward " << backward;
    }
  }
}

// A result that something else reads is kept in bf16.
TEST(QuantizeSwiglu, LeavesAResultThatIsRead) {
  register_operations();
  Program program;
  const Tensor y = swiglu(program.input("gate_up", {DType::kBf16, {16, 256}}));
  program.output("rows", quantize(y, {}).rows);
  EXPECT_TRUE(has(fuse(program), "quantize_swiglu"));
  program.output("y", y);
  EXPECT_FALSE(has(fuse(program), "quantize_swiglu"));
}

TEST(QuantizeSwiglu, ChecksTypes) {
  register_operations();
  Program program;
  EXPECT_EQ(quantize_swiglu(program.input("x", {DType::kBf16, {16, 256}}), {}).rows.type(),
            (Type{DType::kU8, {16, 128}}));
  EXPECT_THROW((void)quantize_swiglu(program.input("odd", {DType::kBf16, {16, 128}}), {}), Error);
  EXPECT_THROW((void)quantize_swiglu(program.input("f32", {DType::kF32, {16, 256}}), {}), Error);
}

}  // namespace
}  // namespace hone::test
