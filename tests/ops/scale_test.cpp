#include "ops/scale/scale.h"

#include <gtest/gtest.h>

#include "ops/op_case.h"

namespace hone::test {
namespace {

TEST(Scale, Cases) {
  check({
      .name = "scale",
      .inputs = {{.name = "x", .type = {DType::kF32, {{37, Count::tokens}, 5}}}},
      .below = {{Count::tokens, 20}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {scale(in[0], -0.3)}; },
      .reference =
          [](std::span<const Values> in, const Counts&) {
            Values y = in[0];
            for (double& each : y) each *= -0.3;
            return std::vector<Values>{y};
          },
  });
}

}  // namespace
}  // namespace hone::test
