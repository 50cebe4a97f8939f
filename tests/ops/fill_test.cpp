#include "ops/fill/fill.h"

#include <gtest/gtest.h>

#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/text.h"

namespace hone::test {
namespace {

OpCase fill_case(const Type& type, double value) {
  return {
      .name = "fill",
      .inputs = {},
      .below = type.count() == Count::none ? Counts{} : Counts{{type.count(), 2}},
      .build = [=](Program& program, std::span<const Tensor>) -> std::vector<Tensor> {
        if (type.count() != Count::none) program.count(type.count(), type.rows());
        return {fill(program, type, value)};
      },
      .reference = [=](std::span<const Values>, const Counts&) -> std::vector<Values> {
        return {Values(static_cast<std::size_t>(type.elements()), value)};
      },
      .seeded = {false},
  };
}

TEST(Fill, Cases) {
  check(fill_case({DType::kF32, {1}}, 1.0));
  check(fill_case({DType::kBf16, {{5, Count::tokens}, 3}}, -0.25));
  check(fill_case({DType::kF64, {{4, Count::tokens}}}, 0.1));
}

TEST(Fill, IsPrintedAndParsed) {
  register_operations();
  Program program;
  program.count(Count::tokens, 5);
  program.output("y", fill(program, {DType::kBf16, {{5, Count::tokens}, 3}}, 0.1));
  const std::string text = to_text(program);
  EXPECT_EQ(to_text(program_from_text(text)), text);
}

}  // namespace
}  // namespace hone::test
