#include "ops/gather_rows/gather_rows.h"

#include <gtest/gtest.h>

#include <memory>

#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

TEST(GatherRows, Cases) {
  const std::int64_t n = 5;
  const Values index{7, 0, 7, 3};
  check({
      .name = "gather_rows",
      .inputs = {{.name = "x", .type = {DType::kF32, {{9, Count::tokens}, n}}},
                 {.name = "index", .type = {DType::kI32, {{4, Count::samples}}}, .values = index}},
      .below = {{Count::tokens, 8}, {Count::samples, 3}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> { return {gather_rows(in[0], in[1])}; },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values y;
            for (const double row : index) {
              const auto first = in[0].begin() + static_cast<std::int64_t>(row) * n;
              y.insert(y.end(), first, first + n);
            }
            return std::vector<Values>{y};
          },
      .seeded = {false},
  });
}

TEST(GatherRows, RefusesRowsThatAreNotThere) {
  if (!test_device_throws()) GTEST_SKIP() << "kernels of a GPU throw nothing";
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kI64, {{3, Count::tokens}, 2}});
  program.output("y", gather_rows(x, program.input("index", {DType::kI32, {{2, Count::samples}}})));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  executable.set<std::int64_t>("x", std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
  executable.set_count(Count::tokens, 2);
  for (const std::int32_t row : {-1, 2}) {
    executable.set<std::int32_t>("index", std::vector<std::int32_t>{0, row});
    EXPECT_THROW(executable.run(), Defect);
  }
  executable.set<std::int32_t>("index", std::vector<std::int32_t>{1, 0});
  executable.run();
  std::vector<std::int64_t> y(4);
  executable.get<std::int64_t>("y", y);
  EXPECT_EQ(y, (std::vector<std::int64_t>{3, 4, 1, 2}));
}

}  // namespace
}  // namespace hone::test
