#include "backend/cpu/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/bf16_products.h"
#include "backend/cpu/gemm.h"
#include "core/parallel.h"
#include "support/bf16_products.h"
#include "support/bits.h"

namespace hone {
namespace {

constexpr std::int64_t kManyRows = 40;  // more than few_rows() computes

// Factors in [-1, 1) as [rows, width], with `stride` elements from a row to the next and NaN between the rows.
template <class T>
std::vector<T> factors(std::int64_t rows, std::int64_t width, std::int64_t stride, std::uint32_t seed) {
  std::vector<T> values(static_cast<std::size_t>(rows * stride), T(std::numeric_limits<float>::quiet_NaN()));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      seed = seed * 1664525U + 1013904223U;
      values[static_cast<std::size_t>(i * stride + j)] = T(static_cast<float>(seed >> 8) * 0x1p-23F - 1.0F);
    }
  }
  return values;
}

// C = A B^T + bias of kManyRows rows.
template <class A, class B, class C>
struct Product {
  GemmArgs args;
  std::vector<A> a;
  std::vector<B> b;
  std::vector<B> bias;

  Product(std::int64_t n, std::int64_t k) {
    args = {.m = kManyRows, .n = n, .k = k, .transpose_b = Transpose::kYes};
    args.a_type = DTypeOf<A>::value;
    args.b_type = args.bias_type = DTypeOf<B>::value;
    args.c_type = DTypeOf<C>::value;
    args.lda = k + 3;
    args.ldb = k + 5;
    args.ldc = n + 1;
    a = factors<A>(kManyRows, k, args.lda, 1);
    b = factors<B>(n, k, args.ldb, 2);
    bias = factors<B>(1, n, n, 3);
    args.a = a.data();
    args.b = b.data();
    args.bias = bias.data();
  }

  // C of the first m rows, by compute(args), in a matrix whose other elements are 7.
  template <class Compute>
  [[nodiscard]] std::vector<C> rows(std::int64_t m, int threads, const Compute& compute) const {
    GemmArgs call = args;
    call.m = m;
    std::vector<std::byte> workspace(gemm_workspace_bytes(call, threads));
    std::vector<C> result(static_cast<std::size_t>(m * args.ldc), C(7.0F));
    call.workspace = workspace;
    call.c = result.data();
    const int before = thread_count();
    set_thread_count(threads);
    compute(call);
    set_thread_count(before);
    return result;
  }

  // Few rows have the bits of the first of many, by `kernels` as by gemm().
  void expect_bits_of_many(const FewRowsKernels& kernels) const {
    const std::vector<C> many = rows(kManyRows, 2, gemm);
    for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 24}) {
      const std::vector<C> expected(many.begin(), many.begin() + m * args.ldc);
      const auto what = text_of(m, " x ", args.n, " x ", args.k);
      for (const int threads : {1, 5}) {
        const auto with = [&](const GemmArgs& call) {
          ASSERT_TRUE(is_few_rows(call));
          few_rows(call, kernels);
        };
        EXPECT_TRUE(test::same_bits(rows(m, threads, with), expected)) << what << ", " << threads << " threads";
      }
      EXPECT_TRUE(test::same_bits(rows(m, 2, gemm), expected)) << what << ", gemm()";
    }
  }
};

struct Size {
  std::int64_t n, k;
};
// The last panel is whole in some, and begins before the end of the one before it in the others. The last two are
// weights of a model of 250M parameters.
constexpr Size kSizes[] = {{32, 32}, {33, 64}, {47, 96}, {100, 1504}, {4999, 32}, {2048, 1024}, {1024, 4096}};

template <class A, class B, class C>
void expect_bits(const FewRowsKernels& kernels) {
  for (const Size& size : kSizes) Product<A, B, C>(size.n, size.k).expect_bits_of_many(kernels);
}

void expect_f32_bits(const FewRowsKernels& kernels) {
  expect_bits<float, float, float>(kernels);
  expect_bits<BFloat16, float, BFloat16>(kernels);
}

void expect_fma_bits(const FewRowsKernels& kernels) {
  const test::WithBf16Products fma(Bf16Products::kFma);
  expect_bits<BFloat16, BFloat16, BFloat16>(kernels);
  expect_bits<BFloat16, BFloat16, float>(kernels);
  expect_bits<float, BFloat16, float>(kernels);
}

TEST(FewRows, HaveTheBitsOfManyByAvx2) {
  expect_f32_bits(few_rows_kernels_avx2(FewRowsProducts::kF32));
  expect_fma_bits(few_rows_kernels_avx2(FewRowsProducts::kBf16Fma));
}

TEST(FewRows, HaveTheBitsOfManyByAvx512) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "this machine lacks the instructions";
  expect_f32_bits(few_rows_kernels_avx512(FewRowsProducts::kF32));
  expect_fma_bits(few_rows_kernels_avx512(FewRowsProducts::kBf16Fma));
}

TEST(FewRows, HaveTheBitsOfManyByAvx512Bf16) {
  if (!has_bf16_products(Bf16Products::kAvx512)) GTEST_SKIP() << "this machine lacks the instructions";
  const test::WithBf16Products pairs(Bf16Products::kAvx512);
  const FewRowsKernels kernels = few_rows_kernels_avx512_bf16();
  expect_bits<BFloat16, BFloat16, BFloat16>(kernels);
  expect_bits<BFloat16, BFloat16, float>(kernels);
}

TEST(FewRows, NonFiniteValuesStayInTheirRowsAndColumns) {
  const test::WithBf16Products fma(Bf16Products::kFma);
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Product<BFloat16, BFloat16, float> product(40, 64);
    product.a[static_cast<std::size_t>(2 * product.args.lda + 63)] = BFloat16(value);
    product.b[static_cast<std::size_t>(39 * product.args.ldb)] = BFloat16(value);
    const auto result = product.rows(4, 2, [](const GemmArgs& call) { few_rows(call); });
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 40; ++j) {
        const float element = result[static_cast<std::size_t>(i * product.args.ldc + j)];
        EXPECT_EQ(std::isfinite(element), i != 2 && j != 39) << i << " " << j;
      }
      EXPECT_EQ(result[static_cast<std::size_t>(i * product.args.ldc + 40)], 7.0F) << "beyond row " << i;
    }
  }
}

TEST(FewRows, OthersAreLeftToTheBlocks) {
  const test::WithBf16Products fma(Bf16Products::kFma);
  GemmArgs args = Product<BFloat16, BFloat16, float>(64, 64).args;
  args.m = 24;
  EXPECT_TRUE(is_few_rows(args));
  const auto refuses = [&args](auto&& change) {
    GemmArgs other = args;
    change(other);
    return !is_few_rows(other);
  };
  EXPECT_TRUE(refuses([](GemmArgs& other) { other.m = 25; }));
  EXPECT_TRUE(refuses([](GemmArgs& other) { other.n = 31; }));
  EXPECT_TRUE(refuses([](GemmArgs& other) { other.k = 48; }));
  EXPECT_TRUE(refuses([](GemmArgs& other) { other.k = 0; }));
  EXPECT_TRUE(refuses([](GemmArgs& other) { other.transpose_b = Transpose::kNo; }));
  EXPECT_TRUE(refuses([](GemmArgs& other) { other.accumulate = true; }));
}

}  // namespace
}  // namespace hone
