// Swiglu of the rows of experts, fused with the quantization of its result, and of its gradient, has the bits of the
// two operations.
#include "ops/quantize_experts_swiglu/quantize_experts_swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/registry.h"
#include "ops/swiglu/swiglu.h"
#include "ops/test_run.h"
#include "passes/fp8.h"
#include "passes/fusion.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

constexpr std::int64_t kInner = 256;
const std::vector<std::int32_t> kFirstRows{0, 3, 3, 140, 267, 300};  // of five experts, and the rows in use
constexpr std::int64_t kExpertRows = 320;

// down(swiglu(gate_up(x))) of experts for x [rows, 128], and its gradients for "dy"; fused in both passes if `fused`.
Program expert_mlp(bool fused) {
  register_operations();
  const auto experts = static_cast<std::int64_t>(kFirstRows.size()) - 1;
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{kExpertRows, Count::tokens}, 128}});
  const Tensor start = program.input("start", {DType::kI32, {experts + 1}});
  const Tensor up = program.weight("gate_up", {DType::kBf16, {experts * 2 * kInner, 128}});
  const Tensor down = program.weight("down", {DType::kBf16, {experts * 128, kInner}});
  const GroupedLinearAttributes by_expert{.experts = experts};
  program.output("y", grouped_linear(swiglu(grouped_linear(x, up, start, by_expert)), down, start, by_expert));
  program = with_fp8(program, {"gate_up", "down"}, true);
  if (fused) program = fuse(program);
  const Tensor y = program.tensor(program.outputs()[0].value);
  const GradientSeed seed{y, program.input("dy", y.type())};
  const Tensor wanted = program.tensor(program.find(Role::kInput, "x"));
  program.output("dx", append_gradients(program, {&seed, 1}, {&wanted, 1})[0]);
  return fused ? fuse(program) : program;
}

bool has_op(const Program& program, std::string_view op) {
  return std::ranges::any_of(program.nodes(), [&](const Node& node) { return node.op->name() == op; });
}

TEST(QuantizeExpertsSwiglu, HasTheBitsOfTheTwoOperations) {
  const auto results = [](bool fused) {
    TestRun run(expert_mlp(fused));
    const auto experts = kFirstRows.size() - 1;
    run.set("x", normal_values<BFloat16>(kExpertRows * 128, 1));
    run.set("dy", normal_values<BFloat16>(kExpertRows * 128, 2));
    run.set("start", kFirstRows);
    run.set_weight("gate_up", normal_values<BFloat16>(experts * 2 * kInner * 128, 3));
    run.set_weight("down", normal_values<BFloat16>(experts * kInner * 128, 4));
    run.executable().set_count(Count::tokens, kFirstRows.back());
    run.executable().run();
    const auto bytes_of = [&](const std::string& name) {
      const std::vector<BFloat16> values = run.output<BFloat16>(name, kExpertRows * 128);
      const auto bytes = std::as_bytes(std::span(values));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    return std::vector{bytes_of("y"), bytes_of("dx"), run.gradient("gate_up"), run.gradient("down")};
  };
  const std::vector<std::vector<std::byte>> fused = results(true);
  const std::vector<std::vector<std::byte>> apart = results(false);
  for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_TRUE(fused[i] == apart[i]) << "result " << i;
}

TEST(QuantizeExpertsSwiglu, ReplacesBothOperations) {
  const Program fused = expert_mlp(true);
  EXPECT_TRUE(has_op(fused, "quantize_experts_swiglu"));
  EXPECT_TRUE(has_op(fused, "quantize_experts_swiglu_backward"));
  EXPECT_FALSE(has_op(fused, "swiglu"));
  EXPECT_FALSE(has_op(fused, "swiglu_backward"));
}

TEST(QuantizeExpertsSwiglu, ChecksTypes) {
  register_operations();
  Program program;
  const Tensor start = program.input("start", {DType::kI32, {3}});
  const Tensor gate_up = program.input("gate_up", {DType::kBf16, {32, 256}});
  EXPECT_NO_THROW((void)quantize_experts_swiglu(gate_up, start, {.experts = 2}));
  EXPECT_THROW((void)quantize_experts_swiglu(gate_up, start, {.experts = 3}), Error);
  EXPECT_THROW((void)quantize_experts_swiglu(program.input("odd", {DType::kBf16, {32, 192}}), start, {.experts = 2}),
               Error);
}

}  // namespace
}  // namespace hone::test
