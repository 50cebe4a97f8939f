// Gradients of matrices that the first micro-batch overwrites have the bits of those that it adds to zeros, whatever
// they held before, and updates that do not clear a gradient leave it alone.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/sgd/sgd.h"
#include "ops/test_run.h"
#include "ops/update_run.h"
#include "passes/fp8.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

constexpr const char* kWeight = "weight";

struct GradientCase {
  std::int64_t n, k;  // outputs and inputs of an expert, or of the one matrix
  DType dtype = DType::kBf16;
  GradientAccumulation sums = GradientAccumulation::kWide;
  bool fp8 = false;
  int uses = 1;         // nodes that multiply by the same weight
  bool experts = true;  // false: linear()
  int capacity = 144;   // rows

  [[nodiscard]] std::int64_t matrices() const { return experts ? 5 : 1; }
};

Program gradients_program(const GradientCase& c, const OverwrittenGradients& overwritten) {
  Program program;
  const Tensor x = program.input("x", {c.dtype, {{c.capacity, Count::tokens}, c.k}});
  const Tensor weight = program.weight(kWeight, {c.dtype, {c.matrices() * c.n, c.k}});
  const Tensor start = program.input("start", {DType::kI32, {c.matrices() + 1}});
  for (int use = 0; use < c.uses; ++use) {
    program.output(text_of("y", use),
                   c.experts ? grouped_linear(x, weight, start, {.experts = c.matrices()}) : linear(x, weight));
  }
  if (c.fp8) program = with_fp8(program, {kWeight}, true);
  std::vector<GradientSeed> seeds;
  for (int use = 0; use < c.uses; ++use) {
    const Tensor y = program.tensor(program.outputs()[static_cast<std::size_t>(use)].value);
    seeds.push_back({y, program.input(text_of("dy", use), y.type())});
  }
  append_gradients(program, seeds, {}, c.sums, overwritten);
  return program;
}

template <class T>
void set_some(TestRun& run, const std::string& input, std::int64_t count, std::uint64_t seed) {
  run.set(input, normal_values<T>(static_cast<std::size_t>(count), seed));
}

// Runs a micro-batch whose experts have these numbers of rows, or whose matrix has their sum.
template <class T>
void run_micro_batch(TestRun& run, const GradientCase& c, const std::vector<std::int32_t>& rows, std::uint64_t seed) {
  std::vector<std::int32_t> start{0};
  for (const std::int32_t each : rows) start.push_back(start.back() + each);
  if (c.experts) run.set("start", start);
  run.executable().set_count(Count::tokens, start.back());
  set_some<T>(run, "x", c.capacity * c.k, seed);
  for (int use = 0; use < c.uses; ++use) set_some<T>(run, text_of("dy", use), c.capacity * c.n, seed + 10 + use);
  run.executable().run();
}

template <class T>
void expect_same_bits(const GradientCase& c) {
  SCOPED_TRACE(text_of(c.n, " x ", c.k, " of ", name_of(c.dtype), c.fp8 ? " in fp8" : "", ", ", c.uses, " uses",
                       c.experts ? "" : ", one matrix"));
  const auto weight = normal_values<T>(static_cast<std::size_t>(c.matrices() * c.n * c.k), 1);
  TestRun adding(gradients_program(c, {}));
  TestRun overwriting(gradients_program(c, {kWeight}));
  adding.set_weight(kWeight, weight);
  overwriting.set_weight(kWeight, weight);
  const auto set_flag = [&](float flag) {
    overwriting.gradients().upload(kAccumulatedFlag, std::as_bytes(std::span(&flag, 1)));
  };
  const auto expect_equal = [&](const char* what) {
    EXPECT_TRUE(adding.gradient(kWeight) == overwriting.gradient(kWeight)) << what;
  };
  // The first step finds what is not a number, the second what the first has left there. Experts have rows in one of
  // them, in both or in none.
  overwriting.gradients().upload(kWeight,
                                 std::vector<std::byte>(overwriting.gradient(kWeight).size(), std::byte{0xFF}));
  for (const std::vector<std::int32_t>& rows : {std::vector{65, 0, 1, 48, 0}, std::vector{0, 70, 33, 7, 0}}) {
    adding.gradients().fill_zero();
    set_flag(0);
    run_micro_batch<T>(adding, c, rows, 2);
    run_micro_batch<T>(overwriting, c, rows, 2);
    expect_equal("first micro-batch");
    set_flag(1);
    run_micro_batch<T>(adding, c, {16, 8, 0, 40, 0}, 3);
    run_micro_batch<T>(overwriting, c, {16, 8, 0, 40, 0}, 3);
    expect_equal("second micro-batch");
  }
  set_flag(0);
  adding.gradients().fill_zero();
  run_micro_batch<T>(adding, c, {0, 0, 0, 0, 0}, 4);
  run_micro_batch<T>(overwriting, c, {0, 0, 0, 0, 0}, 4);
  expect_equal("no rows");
}

TEST(OverwrittenGradients, HaveTheBitsOfSumsFromZero) {
  for (const int uses : {1, 2}) {
    for (const auto sums : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{24, 8}, {5, 3}}) {
        expect_same_bits<BFloat16>({.n = n, .k = k, .sums = sums, .uses = uses});
      }
    }
    expect_same_bits<float>({.n = 24, .k = 40, .dtype = DType::kF32, .uses = uses});
    expect_same_bits<double>({.n = 5, .k = 3, .dtype = DType::kF64, .uses = uses});
  }
}

// The matrices have several tiles on Hopper's tensor cores.
TEST(OverwrittenGradients, HaveTheBitsOfSumsFromZeroInTiles) {
  for (const auto sums : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
    for (const int uses : {1, 2}) {
      expect_same_bits<BFloat16>({.n = 136, .k = 72, .sums = sums, .uses = uses});
      expect_same_bits<BFloat16>({.n = 320, .k = 264, .sums = sums, .uses = uses});
    }
  }
}

TEST(OverwrittenGradients, HaveTheBitsOfSumsFromZeroInFp8) {
  for (const auto sums : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
    for (const int uses : {1, 2})
      expect_same_bits<BFloat16>({.n = 128, .k = 256, .sums = sums, .fp8 = true, .uses = uses});
    expect_same_bits<BFloat16>({.n = 384, .k = 128, .sums = sums, .fp8 = true});
  }
}

// cuBLASLt, split where a dimension is no multiple of 8.
TEST(OverwrittenGradients, OfOneMatrixHaveTheBitsOfSumsFromZero) {
  for (const int uses : {1, 2}) {
    for (const auto sums : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{24, 8}, {13, 11}, {320, 264}}) {
        expect_same_bits<BFloat16>({.n = n, .k = k, .sums = sums, .uses = uses, .experts = false});
      }
    }
    expect_same_bits<float>({.n = 24, .k = 40, .dtype = DType::kF32, .uses = uses, .experts = false});
    expect_same_bits<double>({.n = 5, .k = 3, .dtype = DType::kF64, .uses = uses, .experts = false});
  }
}

// Own tiles, and cuBLASLt where there are few rows.
TEST(OverwrittenGradients, OfOneMatrixHaveTheBitsOfSumsFromZeroInFp8) {
  for (const int uses : {1, 2}) {
    for (const auto sums : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
      for (const int capacity : {144, 1040}) {
        expect_same_bits<BFloat16>(
            {.n = 256, .k = 384, .sums = sums, .fp8 = true, .uses = uses, .experts = false, .capacity = capacity});
      }
    }
  }
}

TEST(OverwrittenGradients, OnlyTheFirstNodeReadsTheFlag) {
  const Program program = gradients_program({.n = 24, .k = 8, .uses = 2}, {kWeight});
  const ValueId flag = program.find(Role::kGradient, kAccumulatedFlag);
  ASSERT_NE(flag, kNoValue);
  std::vector<std::size_t> inputs;
  for (const Node& node : program.nodes()) {
    if (node.op->name() == "grouped_linear_weight_gradient") inputs.push_back(node.inputs.size());
  }
  EXPECT_EQ(inputs, (std::vector<std::size_t>{5, 4}));
  EXPECT_EQ(gradients_program({.n = 24, .k = 8}, {}).find(Role::kGradient, kAccumulatedFlag), kNoValue);
  EXPECT_THROW(gradients_program({.n = 24, .k = 8}, {kWeight, "another"}), Defect);
}

// The first micro-batch reads no gradient, and an update that does not clear it writes none.
TEST(OverwrittenGradients, CostLess) {
  const auto bytes_of = [](const OverwrittenGradients& overwritten) {
    const Program program = gradients_program({.n = 24, .k = 8}, overwritten);
    const Cost cost = program.cost(program.nodes().back());
    return cost.bytes_read + cost.bytes_written;
  };
  EXPECT_EQ(bytes_of({}) - bytes_of({kWeight}), 5 * 24 * 8 * sizeof(float) - sizeof(float));
}

TEST(OverwrittenGradients, OfAnOperationThatAlwaysAddsAreADefect) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor y = rms_norm(x, program.weight(kWeight, {DType::kF32, {8}}), {});
  const GradientSeed seed{y, program.input("dy", y.type())};
  EXPECT_THROW(append_gradients(program, {&seed, 1}, {}, GradientAccumulation::kWide, {kWeight}), Defect);
}

TEST(OverwrittenGradients, RefuseAFlagOfAnotherType) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor start = program.input("start", {DType::kI32, {3}});
  const std::vector<Tensor> inputs{x, x, start, program.gradient(kWeight, {DType::kF32, {16, 8}}),
                                   program.input("flag", {DType::kF32, {2}})};
  register_operations();
  EXPECT_THROW(program.append(op_registry().get("grouped_linear_weight_gradient"),
                              GroupedLinearAttributes{.experts = 2}, inputs),
               Error);
}

// Weight, states and the gradient after a step, and after one with a gradient that is not finite.
template <class Build>
void expect_gradient_stays(const UpdateTypes& types, const Build& build) {
  const auto elements = static_cast<std::size_t>(types.weight.elements());
  const std::vector<float> zeros(elements, 0.0f);
  UpdateRun clears(types, [&](const auto& tensors, const AdamwStep& step) { build(tensors, step, true); });
  UpdateRun keeps(types, [&](const auto& tensors, const AdamwStep& step) { build(tensors, step, false); });
  std::vector<float> gradient(elements);
  for (std::size_t i = 0; i < elements; ++i) gradient[i] = static_cast<float>(static_cast<int>(i % 64) - 31) / 32;
  for (UpdateRun* run : {&clears, &keeps}) run->set_weight(normal_values<float>(elements, 5));
  for (std::int64_t step = 1; step < 4; ++step) {
    const bool bad = step == 3;
    if (bad) gradient[7] = std::numeric_limits<float>::infinity();
    for (UpdateRun* run : {&clears, &keeps}) run->run(gradient, 0.1, 1.0, step);
    EXPECT_EQ(clears.gradient(), zeros);
    EXPECT_EQ(keeps.gradient(), gradient);
    EXPECT_EQ(clears.weight(), keeps.weight());
    EXPECT_EQ(clears.momentum(), keeps.momentum());
    EXPECT_EQ(clears.master(), keeps.master());
  }
  EXPECT_NE(keeps.weight(), normal_values<float>(elements, 5));
}

TEST(OverwrittenGradients, StayAfterAnUpdate) {
  for (const DType gradient : {DType::kF32, DType::kBf16}) {
    for (const bool master : {false, true}) {
      for (const bool momentum : {false, true}) {
        expect_gradient_stays(
            {.weight = {DType::kBf16, {1003}}, .gradient = gradient, .momentum = momentum, .master = master},
            [&](const UpdateRun::Tensors& t, const AdamwStep& step, bool clears) {
              sgd({t.weight, t.gradient, t.momentum, t.master}, step,
                  {.momentum = momentum ? 0.9 : 0.0, .clears = clears});
            });
      }
      expect_gradient_stays(
          {.weight = {DType::kBf16, {1003}}, .gradient = gradient, .momentum = true, .master = master},
          [](const UpdateRun::Tensors& t, const AdamwStep& step, bool clears) {
            Program& program = t.weight.program();
            const Tensor v = program.state("v", t.momentum.type());
            adamw({t.weight, t.gradient, t.momentum, v, t.master}, step, {.clears = clears});
          });
    }
    expect_gradient_stays({.weight = {DType::kBf16, {1003}}, .gradient = gradient},
                          [](const UpdateRun::Tensors& t, const AdamwStep& step, bool clears) {
                            Program& program = t.weight.program();
                            const Type codes{DType::kU8, t.weight.type().shape};
                            const Type scales{DType::kF32, {scales_of(1003)}};
                            adamw_8bit({t.weight, t.gradient, program.state("m", codes), program.state("v", codes),
                                        program.state("m_scale", scales), program.state("v_scale", scales)},
                                       step, {.clears = clears});
                          });
  }
}

}  // namespace
}  // namespace hone::test
