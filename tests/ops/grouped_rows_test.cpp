// Rows of a mixture do not depend on how many an expert has, and are those of a linear layer: on a GPU tiles have as
// many columns as rows are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

struct GroupedShape {
  std::int64_t n, k;  // outputs and inputs of an expert
};

std::vector<BFloat16> some_values(std::int64_t count, std::uint64_t key) {
  const RandomStream random(key, "values");
  std::vector<BFloat16> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = BFloat16(random.normal(i));
  return values;
}

std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& counts) {
  std::vector<std::int32_t> start{0};
  for (const std::int32_t count : counts) start.push_back(start.back() + count);
  return start;
}

struct MixtureResults {
  std::vector<BFloat16> y;        // [rows, n]
  std::vector<BFloat16> dx;       // [rows, k]
  std::vector<BFloat16> dweight;  // [experts x n, k]
};

// Forward and backward of experts with these numbers of rows; `spare` rows are beyond the count and hold large
// numbers.
MixtureResults mixture_results(const GroupedShape& shape, const std::vector<std::int32_t>& counts,
                               const std::vector<BFloat16>& weight, const std::vector<BFloat16>& x,
                               const std::vector<BFloat16>& dy, std::int64_t spare = 0) {
  const auto experts = static_cast<std::int64_t>(counts.size());
  const std::vector<std::int32_t> start = starts_of(counts);
  const std::int64_t rows = start.back() + spare;
  Program program;
  const Tensor in = program.input("x", {DType::kBf16, {{rows, Count::tokens}, shape.k}});
  const Tensor matrix = program.weight("weight", {DType::kBf16, {experts * shape.n, shape.k}});
  const Tensor first = program.input("start", {DType::kI32, {experts + 1}});
  const Tensor y = grouped_linear(in, matrix, first, {.experts = experts});
  const GradientSeed seed{y, program.input("dy", y.type())};
  const std::vector<Tensor> dx = append_gradients(program, {&seed, 1}, {&in, 1}, GradientAccumulation::kAsWeights);
  program.output("y", y);
  program.output("dx", dx[0]);
  TestRun run(std::move(program));
  run.set_weight("weight", weight);
  run.set("start", start);
  const auto with_spare = [&](const std::vector<BFloat16>& values, std::int64_t width) {
    std::vector<BFloat16> some(values.begin(), values.begin() + start.back() * width);
    some.resize(static_cast<std::size_t>(rows * width), BFloat16(1e4f));
    return some;
  };
  run.set("x", with_spare(x, shape.k));
  run.set("dy", with_spare(dy, shape.n));
  run.executable().set_count(Count::tokens, start.back());
  run.executable().run();
  MixtureResults results{run.output<BFloat16>("y", static_cast<std::size_t>(rows * shape.n)),
                         run.output<BFloat16>("dx", static_cast<std::size_t>(rows * shape.k)),
                         {}};
  const std::vector<std::byte> bytes = run.gradient("weight");
  results.dweight.resize(bytes.size() / sizeof(BFloat16));
  std::memcpy(results.dweight.data(), bytes.data(), bytes.size());
  return results;
}

std::vector<BFloat16> part(const std::vector<BFloat16>& values, std::int64_t first, std::int64_t count) {
  return {values.begin() + first, values.begin() + first + count};
}

bool on_cuda() { return test_device().kind() == DeviceKind::kCuda; }

std::vector<GroupedShape> shapes() {
  return on_cuda() ? std::vector<GroupedShape>{{2816, 2048}, {2048, 1408}, {1536, 2048}, {136, 72}, {24, 8}}
                   : std::vector<GroupedShape>{{48, 40}, {24, 8}};
}

TEST(GroupedRows, AreThoseOfManyRows) {
  for (const GroupedShape& shape : shapes()) {
    const std::vector<std::int32_t> many =
        on_cuda() ? std::vector<std::int32_t>{390, 0, 257, 1536} : std::vector<std::int32_t>{70, 0, 33, 20};
    const std::vector<std::int32_t> start = starts_of(many);
    const auto experts = static_cast<std::int64_t>(many.size());
    const std::vector<BFloat16> weight = some_values(experts * shape.n * shape.k, 1);
    const std::vector<BFloat16> x = some_values(start.back() * shape.k, 2);
    const std::vector<BFloat16> dy = some_values(start.back() * shape.n, 3);
    const MixtureResults all = mixture_results(shape, many, weight, x, dy, 3);
    for (const std::int64_t count : {1, 2, 8, 9, 16, 20, 33, 64, 100, 130, 200, 257}) {
      for (std::size_t e = 0; e < many.size(); ++e) {
        if (many[e] < count) continue;
        std::vector<std::int32_t> few(many.size(), 0);
        few[e] = static_cast<std::int32_t>(count);
        const MixtureResults some = mixture_results(shape, few, weight, part(x, start[e] * shape.k, count * shape.k),
                                                    part(dy, start[e] * shape.n, count * shape.n));
        EXPECT_TRUE(same_bits(some.y, part(all.y, start[e] * shape.n, count * shape.n)))
            << "y of " << shape.n << " x " << shape.k << ", " << count << " rows of expert " << e;
        EXPECT_TRUE(same_bits(some.dx, part(all.dx, start[e] * shape.k, count * shape.k)))
            << "dx of " << shape.n << " x " << shape.k << ", " << count << " rows of expert " << e;
      }
    }
    for (std::int64_t i = start.back() * shape.n; i < static_cast<std::int64_t>(all.y.size()); ++i) {
      ASSERT_EQ(static_cast<float>(all.y[static_cast<std::size_t>(i)]), 0.0f) << "spare row at " << i;
    }
  }
}

TEST(GroupedRows, AreThoseOfALinearLayer) {
  for (const GroupedShape& shape : shapes()) {
    const std::int32_t count = on_cuda() ? 300 : 40;
    const std::vector<BFloat16> weight = some_values(shape.n * shape.k, 1);
    const std::vector<BFloat16> x = some_values(count * shape.k, 2);
    const std::vector<BFloat16> dy = some_values(count * shape.n, 3);
    const MixtureResults grouped = mixture_results(shape, {count}, weight, x, dy);
    Program program;
    const Tensor in = program.input("x", {DType::kBf16, {count, shape.k}});
    program.output("y", linear(in, program.weight("weight", {DType::kBf16, {shape.n, shape.k}})));
    TestRun run(std::move(program));
    run.set_weight("weight", weight);
    run.set("x", x);
    run.executable().run();
    EXPECT_TRUE(same_bits(run.output<BFloat16>("y", static_cast<std::size_t>(count * shape.n)), grouped.y))
        << shape.n << " x " << shape.k;
  }
}

// The gradient of a weight is that of its rows alone: other experts and rows of none do not change a bit.
TEST(GroupedRows, GradientsOfWeightsAreThoseOfTheirRows) {
  for (const GroupedShape& shape : shapes()) {
    const std::vector<std::int32_t> counts{65, 0, 1, 48, 7};
    const std::vector<std::int32_t> start = starts_of(counts);
    const auto experts = static_cast<std::int64_t>(counts.size());
    const std::int64_t size = shape.n * shape.k;
    const std::vector<BFloat16> weight = some_values(experts * size, 1);
    const std::vector<BFloat16> x = some_values(start.back() * shape.k, 2);
    const std::vector<BFloat16> dy = some_values(start.back() * shape.n, 3);
    const MixtureResults all = mixture_results(shape, counts, weight, x, dy, 9);
    for (std::size_t e = 0; e < counts.size(); ++e) {
      const auto at = static_cast<std::int64_t>(e) * size;
      const MixtureResults alone =
          mixture_results(shape, {counts[e]}, part(weight, at, size), part(x, start[e] * shape.k, counts[e] * shape.k),
                          part(dy, start[e] * shape.n, counts[e] * shape.n), counts[e] == 0 ? 1 : 0);
      EXPECT_TRUE(same_bits(alone.dweight, part(all.dweight, at, size)))
          << shape.n << " x " << shape.k << ", expert " << e;
      double worst = 0;
      double most = 0;
      for (std::int64_t i = 0; i < size; i += 97) {
        double sum = 0;
        for (std::int64_t r = start[e]; r < start[e + 1]; ++r) {
          sum += static_cast<double>(static_cast<float>(dy[static_cast<std::size_t>(r * shape.n + i / shape.k)])) *
                 static_cast<float>(x[static_cast<std::size_t>(r * shape.k + i % shape.k)]);
        }
        worst = std::max(worst, std::abs(sum - static_cast<float>(all.dweight[static_cast<std::size_t>(at + i)])));
        most = std::max(most, std::abs(sum));
      }
      EXPECT_LE(worst, most * 0.004) << shape.n << " x " << shape.k << ", expert " << e;
    }
  }
}

}  // namespace
}  // namespace hone::test
