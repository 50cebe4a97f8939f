#include "program/independent_nodes.h"

#include <gtest/gtest.h>

#include <array>

#include "program/test_ops.h"

namespace hone::test {
namespace {

const Type kBytes{DType::kU8, {8}};

TEST(IndependentNodes, EndWhereANodeReadsOrWritesWhatAnotherOneWrites) {
  Program program;
  const Tensor a = program.weight("a", kBytes);
  const Tensor b = program.weight("b", kBytes);
  const Tensor c = program.weight("c", kBytes);
  const Tensor rate = program.input("rate", kBytes);
  const Tensor a1 = mix_in_place(a, rate);  // 0
  (void)mix_in_place(b, rate);              // 1
  (void)mix_in_place(c, a1);                // 2: reads what 0 writes
  (void)mix_in_place(a1, rate);             // 3: writes what 2 reads
  (void)mix(program, std::array{rate}, 8, 0);
  (void)mix(program, std::array{rate}, 8, 0);
  EXPECT_EQ(end_of_independent_nodes(program, 0), 2u);
  EXPECT_EQ(end_of_independent_nodes(program, 1), 3u);
  EXPECT_EQ(end_of_independent_nodes(program, 2), 3u);
  EXPECT_EQ(end_of_independent_nodes(program, 3), 4u);
  EXPECT_EQ(end_of_independent_nodes(program, 4), 6u);
  EXPECT_EQ(end_of_independent_nodes(program, 5), 6u);
}

}  // namespace
}  // namespace hone::test
