#include "ops/cast/cast.h"

#include <gtest/gtest.h>

#include <memory>

#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

// Casts to f64, so that the value is exact and the gradient is rounded to x's dtype.
TEST(Cast, Cases) {
  check({
      .name = "cast",
      .inputs = {{.name = "x", .type = {DType::kF32, {{21, Count::tokens}, 7}}}},
      .below = {{Count::tokens, 10}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {cast(in[0], DType::kF64)}; },
      .reference = [](std::span<const Values> in, const Counts&) { return std::vector<Values>{in[0]}; },
  });
}

TEST(Cast, RoundsToNearestEven) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF64, {4}});
  program.output("f32", cast(x, DType::kF32));
  program.output("bf16", cast(cast(x, DType::kF32), DType::kBf16));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  executable.set<double>("x", std::vector<double>{1.0 + 0x1p-24, 1.0 + 0x1.8p-23, 1.0 + 0x1p-8, 1.0 + 0x1.8p-7});
  executable.run();
  std::vector<float> narrow(4);
  executable.get<float>("f32", narrow);
  EXPECT_EQ(narrow, (std::vector<float>{1.0f, 1.0f + 0x1p-22f, 1.0f + 0x1p-8f, 1.0f + 0x1.8p-7f}));
  std::vector<BFloat16> half(4);
  executable.get<BFloat16>("bf16", half);
  EXPECT_EQ(static_cast<float>(half[2]), 1.0f);
  EXPECT_EQ(static_cast<float>(half[3]), 1.0f + 0x1p-6f);
}

}  // namespace
}  // namespace hone::test
