#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/gemm.h"
#include "core/error.h"
#include "core/parallel.h"
#include "support/bf16_products.h"
#include "support/bits.h"

namespace hone {
namespace {

struct Shape {
  std::int64_t m, n, k;
};

struct Form {
  bool flip_a, flip_b, bias, accumulate;
};

// Random operands with padded rows, NaN in the padding; C is a matrix of Out. `whole` draws small integers, whose
// products and sums are exact.
template <class Out>
struct Bf16Case {
  GemmArgs args;
  std::vector<BFloat16> a, b, bias;
  std::vector<Out> c;

  Bf16Case(const Shape& shape, const Form& form, bool whole) {
    args = {.m = shape.m, .n = shape.n, .k = shape.k, .a_type = DType::kBf16, .b_type = DType::kBf16};
    args.c_type = DTypeOf<Out>::value;
    args.transpose_a = form.flip_a ? Transpose::kYes : Transpose::kNo;
    args.transpose_b = form.flip_b ? Transpose::kYes : Transpose::kNo;
    args.lda = (form.flip_a ? shape.m : shape.k) + 3;
    args.ldb = (form.flip_b ? shape.k : shape.n) + 5;
    args.ldc = shape.n + 1;
    args.accumulate = form.accumulate;
    a = matrix<BFloat16>(form.flip_a ? shape.k : shape.m, args.lda, args.lda - 3, whole, 1);
    b = matrix<BFloat16>(form.flip_b ? shape.n : shape.k, args.ldb, args.ldb - 5, whole, 2);
    c = matrix<Out>(shape.m, args.ldc, shape.n, whole, 3);
    bias = matrix<BFloat16>(1, shape.n, shape.n, whole, 4);
    args.a = a.data();
    args.b = b.data();
    if (!form.bias) return;
    args.bias = bias.data();
    args.bias_type = DType::kBf16;
  }

  template <class T>
  static std::vector<T> matrix(std::int64_t rows, std::int64_t stride, std::int64_t width, bool whole, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<T> values(static_cast<std::size_t>(rows * stride), T(std::numeric_limits<float>::quiet_NaN()));
    for (std::int64_t i = 0; i < rows * stride; ++i) {
      if (i % stride >= width) continue;
      const float value = normal(engine);
      values[static_cast<std::size_t>(i)] = T(whole ? std::round(2.0F * value) : value);
    }
    return values;
  }

  [[nodiscard]] std::vector<Out> computed(int threads) const {
    std::vector<Out> result = c;
    GemmArgs call = args;
    std::vector<std::byte> workspace(gemm_workspace_bytes(args, threads));
    call.workspace = workspace;
    call.c = result.data();
    const int before = thread_count();
    set_thread_count(threads);
    gemm(call);
    set_thread_count(before);
    return result;
  }

  // Compares with sums in f64. An element may be off by `relative` times the sum of its terms' magnitudes, and by one
  // rounding to Out.
  void expect_near(const std::vector<Out>& result, double relative, const std::string& what) const {
    for (std::int64_t i = 0; i < args.m; ++i) {
      for (std::int64_t j = 0; j < args.n; ++j) {
        const auto at = static_cast<std::size_t>(i * args.ldc + j);
        double sum = args.accumulate ? static_cast<float>(c[at]) : 0.0;
        double magnitude = std::abs(sum);
        for (std::int64_t s = 0; s < args.k; ++s) {
          const bool flip_a = args.transpose_a == Transpose::kYes, flip_b = args.transpose_b == Transpose::kYes;
          const double x =
              static_cast<float>(a[static_cast<std::size_t>(flip_a ? s * args.lda + i : i * args.lda + s)]);
          const double y =
              static_cast<float>(b[static_cast<std::size_t>(flip_b ? j * args.ldb + s : s * args.ldb + j)]);
          sum += x * y;
          magnitude += std::abs(x * y);
        }
        if (args.bias != nullptr) sum += static_cast<float>(bias[static_cast<std::size_t>(j)]);
        const double rounding = sizeof(Out) == 2 ? std::abs(sum) / 256 : 0.0;
        const double expected = relative == 0.0 ? static_cast<float>(Out(static_cast<float>(sum))) : sum;
        const double off = std::abs(static_cast<float>(result[at]) - expected);
        ASSERT_LE(off, relative == 0.0 ? 0.0 : relative * (magnitude + 1.0) + rounding)
            << what << " row " << i << " column " << j;
      }
    }
  }
};

class Bf16Gemm : public testing::TestWithParam<Bf16Products> {
 protected:
  void SetUp() override {
    if (!has_bf16_products(GetParam())) GTEST_SKIP() << "this machine lacks the instructions";
    set_bf16_products(GetParam());
  }
  void TearDown() override { set_bf16_products(before_); }

 private:
  Bf16Products before_ = bf16_products();
};

const Shape kShapes[] = {{1, 1, 1},     {3, 5, 7},     {16, 32, 32},   {17, 33, 31},   {32, 32, 64},
                         {33, 70, 100}, {31, 96, 129}, {64, 544, 96},  {40, 30, 1056}, {7, 40, 2100},
                         {70, 65, 33},  {5, 600, 40},  {800, 33, 1030}};

template <class Out>
void expect_sums(const Shape& shape) {
  for (int form = 0; form < 12; ++form) {
    if (shape.m >= 100 && form % 4 != form / 4) continue;  // the references of large shapes take time
    const Form how{form % 2 == 1, form / 2 % 2 == 1, form / 4 == 1, form / 4 == 2};
    const std::string what = text_of(shape.m, "x", shape.n, "x", shape.k, " form ", form);
    const Bf16Case<Out> exact(shape, how, true), random(shape, how, false);
    const auto expected = random.computed(1);
    exact.expect_near(exact.computed(1), 0.0, what + " of integers");
    random.expect_near(expected, 1e-6, what);
    for (const int threads : {2, 5}) {
      const auto result = random.computed(threads);
      EXPECT_EQ(0, std::memcmp(result.data(), expected.data(), result.size() * sizeof(Out))) << what;
    }
  }
}

TEST_P(Bf16Gemm, SumsAreThoseOfEveryShapeAndForm) {
  for (const Shape& shape : kShapes) {
    expect_sums<float>(shape);
    expect_sums<BFloat16>(shape);
  }
}

// Generation multiplies few rows and training many; their log-probabilities must be equal in every bit.
TEST_P(Bf16Gemm, RowsDoNotDependOnTheirNumber) {
  for (const bool flip_b : {false, true}) {
    const Form form{false, flip_b, true, false};
    const Bf16Case<BFloat16> whole({100, 130, 1500}, form, false);
    const auto expected = whole.computed(2);
    for (const std::int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 65}) {
      Bf16Case<BFloat16> some({100, 130, 1500}, form, false);
      some.args.m = rows;
      const auto result = some.computed(1);
      EXPECT_EQ(0, std::memcmp(result.data(), expected.data(), static_cast<std::size_t>(rows * some.args.ldc - 1) * 2))
          << rows;
    }
  }
}

TEST_P(Bf16Gemm, EmptySumIsZeroOrTheOldValue) {
  const Bf16Case<float> zero({3, 20, 0}, {false, true, false, false}, false);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(zero.computed(2)[static_cast<std::size_t>(i * 21 + 5)], 0.0F);
  const Bf16Case<BFloat16> old({3, 20, 0}, {false, true, false, true}, false);
  EXPECT_TRUE(test::same_bits(old.computed(2), old.c));
}

template <class Out>
void expect_one_row_to_have(float value) {
  Bf16Case<Out> test({40, 20, 70}, {false, true, false, false}, false);
  test.a[static_cast<std::size_t>(4 * test.args.lda + 69)] = BFloat16(value);
  const auto result = test.computed(2);
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 20; ++j) {
      const auto element = static_cast<float>(result[static_cast<std::size_t>(i * test.args.ldc + j)]);
      EXPECT_EQ(std::isnan(element), i == 4 && std::isnan(value)) << i << " " << j;
      EXPECT_EQ(std::isinf(element), i == 4 && std::isinf(value)) << i << " " << j;
    }
  }
}

TEST_P(Bf16Gemm, NonFiniteValuesStayInTheirRows) {
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    expect_one_row_to_have<float>(value);
    expect_one_row_to_have<BFloat16>(value);
  }
}

TEST_P(Bf16Gemm, SmallWorkspaceCostsThreadsOnly) {
  const Bf16Case<BFloat16> test({64, 400, 3000}, {false, true, false, false}, false);
  const auto expected = test.computed(4);
  std::vector<BFloat16> result = test.c;
  GemmArgs call = test.args;
  std::vector<std::byte> workspace(gemm_workspace_bytes(call, 1));
  call.workspace = workspace;
  call.c = result.data();
  gemm(call);
  EXPECT_EQ(0, std::memcmp(result.data(), expected.data(), result.size() * sizeof(BFloat16)));
}

TEST(Bf16Products, TheVariableNamesAKindOrGivesOneLine) {
  EXPECT_EQ(bf16_products_of("fma"), Bf16Products::kFma);
  EXPECT_TRUE(has_bf16_products(bf16_products_of("")));
  for (const auto& [name, kind] : {std::pair("avx512", Bf16Products::kAvx512), std::pair("amx", Bf16Products::kAmx)}) {
    if (has_bf16_products(kind)) {
      EXPECT_EQ(bf16_products_of(name), kind);
    } else {
      EXPECT_THROW((void)bf16_products_of(name), Error);
    }
  }
  try {
    (void)bf16_products_of("AMX");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "HONE_BF16_PRODUCTS: unknown kind 'AMX' (choose fma, avx512 or amx)");
  }
}

std::string name_of_kind(const testing::TestParamInfo<Bf16Products>& kind) {
  constexpr const char* kNames[] = {"Fma", "Avx512", "Amx"};
  return kNames[static_cast<int>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, Bf16Gemm,
                         testing::Values(Bf16Products::kFma, Bf16Products::kAvx512, Bf16Products::kAmx), name_of_kind);

}  // namespace
}  // namespace hone
