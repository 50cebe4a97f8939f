#include "ops/head_columns/head_columns.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/text.h"

namespace hone::test {
namespace {

OpCase head_columns_case(std::int64_t rows, const HeadColumnsAttributes& a) {
  return {
      .name = text_of("head_columns_", rows, "x", a.heads, "x", a.columns, "_from_", a.first, "_of_", a.head_dim),
      .inputs = {{"x", {DType::kF32, {{rows, Count::tokens}, a.heads * a.head_dim}}}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {head_columns(in[0], a)}; },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y;
            for (std::int64_t head = 0; head < rows * a.heads; ++head) {
              const auto begin = in[0].begin() + head * a.head_dim + a.first;
              y.insert(y.end(), begin, begin + a.columns);
            }
            return std::vector<Values>{y};
          },
  };
}

TEST(HeadColumns, Cases) {
  check(head_columns_case(1, {.heads = 1, .head_dim = 2, .columns = 1}));
  check(head_columns_case(9, {.heads = 3, .head_dim = 16, .columns = 8}));
  check(head_columns_case(7, {.heads = 5, .head_dim = 24, .columns = 16}));
  check(head_columns_case(4, {.heads = 2, .head_dim = 11, .columns = 11}));
  check(head_columns_case(9, {.heads = 1, .head_dim = 28, .columns = 8, .first = 20}));
  check(head_columns_case(6, {.heads = 3, .head_dim = 16, .columns = 8, .first = 4}));
  check(head_columns_case(4, {.heads = 2, .head_dim = 11, .columns = 3, .first = 7}));
  check(head_columns_case(3, {.heads = 70, .head_dim = 40, .columns = 33}));
}

TEST(HeadColumns, TextRoundTrips) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{4, Count::tokens}, 10}});
  program.output("y", head_columns(x, {.heads = 2, .head_dim = 5, .columns = 3}));
  const std::string text = to_text(program);
  EXPECT_NE(text.find("bf16[tokens:4, 6] = head_columns(%0) {heads=2, head_dim=5, columns=3, first=0}"),
            std::string::npos)
      << text;
  EXPECT_EQ(to_text(program_from_text(text)), text);
}

TEST(HeadColumns, RefusesWhatDoesNotFit) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 10}});
  EXPECT_NO_THROW((void)head_columns(x, {.heads = 2, .head_dim = 5, .columns = 5}));
  EXPECT_THROW((void)head_columns(x, {.heads = 2, .head_dim = 5, .columns = 6}), Error);
  EXPECT_THROW((void)head_columns(x, {.heads = 2, .head_dim = 4, .columns = 3}), Error);
  EXPECT_THROW((void)head_columns(x, {.heads = 2, .head_dim = 5, .columns = 3, .first = 3}), Error);
  EXPECT_THROW((void)head_columns(x, {.heads = 0, .head_dim = 5, .columns = 3}), Error);
}

}  // namespace
}  // namespace hone::test
