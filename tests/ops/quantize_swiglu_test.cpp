// Swiglu fused with the quantization of its result, and of its gradient, has the bits of the two operations.
#include "ops/quantize_swiglu/quantize_swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
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
