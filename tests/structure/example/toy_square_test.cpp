#include <gtest/gtest.h>

#include "example/registrations.h"
#include "ops/op_case.h"
#include "ops/toy_square/toy_square.h"

namespace hone::test {
namespace {

OpCase toy_square_case(std::int64_t rows, std::int64_t n, double factor) {
  return {
      .name = "toy_square_" + std::to_string(rows) + "x" + std::to_string(n),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, n}}}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {toy_square(in[0], {.factor = factor})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y = in[0];
            for (double& value : y) value *= factor * value;
            return std::vector<Values>{y};
          },
  };
}

TEST(ToySquare, Cases) {
  register_example();
  check(toy_square_case(1, 8, 1.0));
  check(toy_square_case(9, 33, -0.5));
}

}  // namespace
}  // namespace hone::test
