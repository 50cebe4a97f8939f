#include "backend/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace hone {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Error of a result in units in the last place of the true value rounded to f32.
double ulps(float value, double truth) {
  const auto rounded = std::fabs(static_cast<float>(truth));
  if (value == static_cast<float>(truth)) return 0.0;
  const double unit = static_cast<double>(std::nextafter(rounded, kInf)) - rounded;
  return std::fabs(value - truth) / unit;
}

// Largest error over the floats between two of the same sign, sampled every `step` bit patterns.
template <class Function, class Truth>
double worst_ulps(float from, float to, std::uint32_t step, const Function& function, const Truth& truth) {
  std::uint32_t begin = std::bit_cast<std::uint32_t>(from);
  std::uint32_t end = std::bit_cast<std::uint32_t>(to);
  if (begin > end) std::swap(begin, end);
  double worst = 0.0;
  for (std::uint64_t bits = begin; bits <= end; bits += step) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    worst = std::max(worst, ulps(function(x), truth(static_cast<double>(x))));
  }
  return worst;
}

TEST(VectorMath, ExpOverAllItsRange) {
  const auto f = [](float x) { return vexp(x); };
  const auto g = [](double x) { return std::exp(x); };
  EXPECT_LT(worst_ulps(1e-30F, 88.72F, 1009, f, g), 1.5);
  EXPECT_LT(worst_ulps(-1e-30F, -87.3F, 1009, f, g), 1.5);
  EXPECT_LT(worst_ulps(-87.3F, -103.9F, 101, f, g), 1.5);  // subnormal results
  EXPECT_EQ(vexp(0.0F), 1.0F);
  EXPECT_EQ(vexp(-kInf), 0.0F);
  EXPECT_EQ(vexp(-3e38F), 0.0F);
  EXPECT_EQ(vexp(kInf), kInf);
  EXPECT_EQ(vexp(88.8F), kInf);
  EXPECT_EQ(vexp(3e38F), kInf);
  EXPECT_TRUE(std::isnan(vexp(kNan)));
}

TEST(VectorMath, LogOverAllItsRange) {
  const auto f = [](float x) { return vlog(x); };
  const auto g = [](double x) { return std::log(x); };
  EXPECT_LT(worst_ulps(std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 1009, f, g), 1.5);
  EXPECT_LT(worst_ulps(0.5F, 2.0F, 11, f, g), 1.5);
  EXPECT_EQ(vlog(1.0F), 0.0F);
  EXPECT_EQ(vlog(0.0F), -kInf);
  EXPECT_EQ(vlog(-0.0F), -kInf);
  EXPECT_EQ(vlog(kInf), kInf);
  EXPECT_TRUE(std::isnan(vlog(-1.0F)));
  EXPECT_TRUE(std::isnan(vlog(-kInf)));
  EXPECT_TRUE(std::isnan(vlog(-1e-40F)));
  EXPECT_TRUE(std::isnan(vlog(kNan)));
}

TEST(VectorMath, SigmoidAndTanh) {
  const auto sigmoid = [](float x) { return vsigmoid(x); };
  const auto true_sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  EXPECT_LT(worst_ulps(1e-30F, 100.0F, 1009, sigmoid, true_sigmoid), 2.5);
  EXPECT_LT(worst_ulps(-1e-30F, -103.0F, 1009, sigmoid, true_sigmoid), 2.5);
  EXPECT_EQ(vsigmoid(-kInf), 0.0F);
  EXPECT_EQ(vsigmoid(kInf), 1.0F);
  EXPECT_TRUE(std::isnan(vsigmoid(kNan)));
  const auto tanh = [](float x) { return vtanh(x); };
  const auto true_tanh = [](double x) { return std::tanh(x); };
  EXPECT_LT(worst_ulps(1e-18F, 100.0F, 1009, tanh, true_tanh), 2.5);
  EXPECT_LT(worst_ulps(-1e-18F, -100.0F, 1009, tanh, true_tanh), 2.5);
  EXPECT_EQ(vtanh(kInf), 1.0F);
  EXPECT_EQ(vtanh(-kInf), -1.0F);
  EXPECT_TRUE(std::isnan(vtanh(kNan)));
}

TEST(VectorMath, LoopsGiveTheBitsOfSingleCalls) {
  constexpr int kCount = 1003;
  float x[kCount];
  float exps[kCount];
  float logs[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = static_cast<float>(i - 500) * 0.217F;
  for (int i = 0; i < kCount; ++i) exps[i] = vexp(x[i]);
  for (int i = 0; i < kCount; ++i) logs[i] = vlog(exps[i]);
  for (int i = 0; i < kCount; ++i) {
    volatile float one = x[i];
    EXPECT_EQ(exps[i], vexp(one));
    volatile float exponential = exps[i];
    EXPECT_EQ(logs[i], vlog(exponential));
  }
}

template <class T>
std::vector<T> values(int n) {
  std::vector<T> result;
  for (int i = 0; i < n; ++i) result.push_back(T(std::sin(1.7F * static_cast<float>(i)) * 3.0F));
  return result;
}

template <class T>
void expect_lanes() {
  using Real = Accumulator<T>;
  for (const int n : {0, 1, 7, 15, 16, 17, 64, 100, 1000}) {
    const std::vector<T> x = values<T>(n);
    Real sums[16] = {}, dots[16] = {};
    Real most = -std::numeric_limits<Real>::infinity();
    for (int i = 0; i < n; ++i) {
      const auto value = static_cast<Real>(x[static_cast<std::size_t>(i)]);
      sums[i % 16] += value;
      dots[i % 16] = std::fma(value, value, dots[i % 16]);
      most = std::max(most, value);
    }
    const auto tree = [](const Real* v) {
      Real a[8], b[4];
      for (int i = 0; i < 8; ++i) a[i] = v[i] + v[i + 8];
      for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
      return (b[0] + b[2]) + (b[1] + b[3]);
    };
    EXPECT_EQ(sum16(x.data(), n), tree(sums)) << n;
    EXPECT_EQ(dot16(x.data(), x.data(), n), tree(dots)) << n;
    EXPECT_EQ(max16(x.data(), n), most) << n;
  }
}

TEST(VectorMath, ReductionsHaveSixteenLanes) {
  expect_lanes<float>();
  expect_lanes<double>();
  expect_lanes<BFloat16>();
}

TEST(VectorMath, RowsAreNarrowedAsSingleNumbers) {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  values.resize(values.size() - 3);  // not a multiple of a vector
  std::vector<BFloat16> narrowed(values.size());
  narrow_row(values.data(), static_cast<std::int64_t>(values.size()), narrowed.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(narrowed[i].bits, BFloat16(values[i]).bits) << std::bit_cast<std::uint32_t>(values[i]);
  }
}

}  // namespace
}  // namespace hone
