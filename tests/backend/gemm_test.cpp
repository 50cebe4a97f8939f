#include "backend/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/gemm_kernels.h"
#include "core/error.h"
#include "core/parallel.h"
#include "support/bf16_products.h"
#include "support/bits.h"

namespace hone {
namespace {

template <class T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = T(static_cast<float>(normal(engine)));
  return values;
}

// Random operands with padded leading dimensions; expected() computes the result by definition, one fma chain per
// element.
template <class A, class B, class C>
struct Case {
  using Real = std::conditional_t<std::is_same_v<C, double>, double, float>;
  GemmArgs args;
  std::vector<A> a;
  std::vector<B> b;
  std::vector<C> c;
  std::vector<A> bias;

  Case(std::int64_t m, std::int64_t n, std::int64_t k, bool flip_a, bool flip_b, bool with_bias, bool accumulate) {
    args = {
        .m = m, .n = n, .k = k, .a_type = DTypeOf<A>::value, .b_type = DTypeOf<B>::value, .c_type = DTypeOf<C>::value};
    args.transpose_a = flip_a ? Transpose::kYes : Transpose::kNo;
    args.transpose_b = flip_b ? Transpose::kYes : Transpose::kNo;
    args.lda = (flip_a ? m : k) + 3;
    args.ldb = (flip_b ? k : n) + 5;
    args.ldc = n + 1;
    a = random_values<A>(static_cast<std::size_t>((flip_a ? k : m) * args.lda), 1);
    b = random_values<B>(static_cast<std::size_t>((flip_b ? n : k) * args.ldb), 2);
    c = random_values<C>(static_cast<std::size_t>(m * args.ldc), 3);
    args.a = a.data();
    args.b = b.data();
    args.accumulate = accumulate;
    if (with_bias) {
      bias = random_values<A>(static_cast<std::size_t>(n), 4);
      args.bias = bias.data();
      args.bias_type = DTypeOf<A>::value;
    }
  }

  [[nodiscard]] std::vector<C> expected() const {
    std::vector<C> result = c;
    const bool flip_a = args.transpose_a == Transpose::kYes;
    const bool flip_b = args.transpose_b == Transpose::kYes;
    for (std::int64_t i = 0; i < args.m; ++i) {
      for (std::int64_t j = 0; j < args.n; ++j) {
        C& out = result[static_cast<std::size_t>(i * args.ldc + j)];
        Real sum = args.accumulate ? static_cast<Real>(out) : Real(0);
        for (std::int64_t s = 0; s < args.k; ++s) {
          const auto x = static_cast<Real>(a[static_cast<std::size_t>(flip_a ? s * args.lda + i : i * args.lda + s)]);
          const auto y = static_cast<Real>(b[static_cast<std::size_t>(flip_b ? j * args.ldb + s : s * args.ldb + j)]);
          sum = std::fma(x, y, sum);
        }
        if (args.bias != nullptr) sum += static_cast<Real>(bias[static_cast<std::size_t>(j)]);
        out = C(sum);
      }
    }
    return result;
  }

  [[nodiscard]] std::vector<C> computed(int threads) const {
    std::vector<C> result = c;
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
};

template <class A, class B, class C>
void expect_chains(std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const bool flip_a : {false, true}) {
    for (const bool flip_b : {false, true}) {
      for (const int extra : {0, 1, 2}) {  // nothing, bias, accumulate
        if (extra == 2 && std::is_same_v<C, BFloat16>) continue;
        const Case<A, B, C> test(m, n, k, flip_a, flip_b, extra == 1, extra == 2);
        const auto expected = test.expected();
        for (const int threads : {1, 2, 5}) {
          EXPECT_TRUE(test::same_bits(test.computed(threads), expected))
              << m << "x" << n << "x" << k << " flips " << flip_a << flip_b << " extra " << extra << " threads "
              << threads;
        }
      }
    }
  }
}

TEST(Gemm, ElementIsOneChainOfFmaInEveryShape) {
  const std::int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},     {6, 16, 8},   {12, 32, 256},
                                   {13, 33, 257}, {1, 130, 600}, {5, 47, 513}, {24, 64, 40},
                                   {25, 96, 300}, {150, 40, 30}, {7, 1, 1000}, {200, 530, 20}};
  for (const auto& size : sizes) expect_chains<float, float, float>(size[0], size[1], size[2]);
}

TEST(Gemm, ElementIsOneChainOfFmaInEveryType) {
  const test::WithBf16Products fma(Bf16Products::kFma);
  const std::int64_t sizes[][3] = {{3, 5, 7}, {1, 40, 700}, {30, 33, 300}, {16, 48, 64}};
  for (const auto& size : sizes) {
    expect_chains<BFloat16, BFloat16, BFloat16>(size[0], size[1], size[2]);
    expect_chains<BFloat16, float, BFloat16>(size[0], size[1], size[2]);
    expect_chains<float, BFloat16, float>(size[0], size[1], size[2]);
    expect_chains<BFloat16, BFloat16, float>(size[0], size[1], size[2]);
    expect_chains<double, double, double>(size[0], size[1], size[2]);
  }
}

TEST(Gemm, LargeProductOnSeveralThreads) {
  const test::WithBf16Products fma(Bf16Products::kFma);
  const Case<float, float, float> f32(300, 700, 400, false, true, true, false);
  const Case<BFloat16, BFloat16, BFloat16> bf16(800, 90, 600, false, true, true, false);
  for (const int threads : {1, 2, 3, 8}) {
    EXPECT_TRUE(test::same_bits(f32.computed(threads), f32.expected())) << threads;
    EXPECT_TRUE(test::same_bits(bf16.computed(threads), bf16.expected())) << threads;
  }
}

TEST(Gemm, EmptySumIsZeroOrTheOldValue) {
  const Case<float, float, float> zero(3, 20, 0, false, true, true, false);
  EXPECT_TRUE(test::same_bits(zero.computed(2), zero.expected()));
  const Case<float, float, float> old(3, 20, 0, false, true, false, true);
  EXPECT_TRUE(test::same_bits(old.computed(2), old.c));
  const Case<float, float, float> none(0, 20, 4, false, true, false, false);
  EXPECT_TRUE(test::same_bits(none.computed(2), none.c));
}

TEST(Gemm, RowsDoNotDependOnTheirNumber) {
  const Case<float, float, float> whole(40, 100, 700, false, true, false, false);
  const auto expected = whole.computed(2);
  for (const std::int64_t rows : {1, 2, 7, 16, 24, 25}) {
    Case<float, float, float> some(40, 100, 700, false, true, false, false);
    some.args.m = rows;
    const auto result = some.computed(2);
    EXPECT_EQ(0, std::memcmp(result.data(), expected.data(), static_cast<std::size_t>(rows * some.args.ldc - 1) * 4))
        << rows;
  }
}

TEST(Gemm, NonFiniteValuesStayInTheirRowsAndColumns) {
  Case<float, float, float> test(9, 20, 30, false, true, false, false);
  test.a[static_cast<std::size_t>(4 * test.args.lda + 2)] = std::numeric_limits<float>::quiet_NaN();
  const auto result = test.computed(2);
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t j = 0; j < 20; ++j) {
      EXPECT_EQ(std::isnan(result[static_cast<std::size_t>(i * test.args.ldc + j)]), i == 4);
    }
  }
}

TEST(Gemm, SmallWorkspaceCostsThreadsOnly) {
  const Case<float, float, float> test(64, 400, 300, false, true, false, false);
  std::vector<float> result = test.c;
  GemmArgs call = test.args;
  std::vector<std::byte> workspace(gemm_workspace_bytes(call, 1));
  call.workspace = workspace;
  call.c = result.data();
  const int before = thread_count();
  set_thread_count(4);
  gemm(call);
  set_thread_count(before);
  EXPECT_TRUE(test::same_bits(result, test.expected()));
  call.workspace = call.workspace.first(workspace.size() / 2);
  EXPECT_THROW(gemm(call), Defect);
}

TEST(Gemm, WorkspaceServesSmallerProducts) {
  for (const bool flip_b : {false, true}) {
    const Case<float, float, float> large(200, 530, 1100, false, flip_b, false, false);
    std::vector<std::byte> workspace(gemm_workspace_bytes(large.args, 1));
    for (const std::int64_t m : {1, 20, 24, 25, 150}) {
      for (const std::int64_t k : {1, 256, 512, 600}) {
        const Case<float, float, float> small(m, 530, k, false, flip_b, false, false);
        std::vector<float> result = small.c;
        GemmArgs call = small.args;
        call.workspace = workspace;
        call.c = result.data();
        gemm(call);
        EXPECT_TRUE(test::same_bits(result, small.expected())) << m << " " << k;
      }
    }
  }
}

TEST(Gemm, WorkspaceIsModest) {
  for (const DType type : {DType::kF32, DType::kBf16, DType::kF64}) {
    const GemmArgs args{.m = 8192,
                        .n = 150000,
                        .k = 8192,
                        .transpose_b = Transpose::kYes,
                        .a_type = type,
                        .b_type = type,
                        .c_type = type};
    EXPECT_LE(gemm_workspace_bytes(args, 8), std::size_t{8} * 4 << 20) << name_of(type);
  }
}

TEST(Gemm, RefusesContradictoryArguments) {
  Case<float, float, float> test(4, 4, 4, false, false, true, false);
  test.args.accumulate = true;
  EXPECT_THROW((void)test.computed(1), Defect);
  test.args.accumulate = false;
  test.args.b_type = DType::kF64;
  EXPECT_THROW((void)test.computed(1), Defect);
  test.args.b_type = DType::kF32;
  test.args.lda = 3;
  EXPECT_THROW((void)test.computed(1), Defect);
}

template <class Real>
void expect_tile_chains(const TileKernels<Real>& tile) {
  constexpr std::int64_t kDepth = 77;
  const auto a = random_values<Real>(static_cast<std::size_t>(tile.rows * kDepth), 5);  // [kDepth, rows]
  auto a_rows = a;                                                                      // [rows, kDepth]
  for (std::int64_t s = 0; s < kDepth; ++s) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      a_rows[static_cast<std::size_t>(i * kDepth + s)] = a[static_cast<std::size_t>(s * tile.rows + i)];
    }
  }
  const auto b = random_values<Real>(static_cast<std::size_t>(tile.columns * kDepth), 6);
  const std::int64_t stride = tile.columns + 3;
  const auto c = random_values<Real>(static_cast<std::size_t>(tile.rows * stride), 7);
  for (int rows = 1; rows <= tile.rows; ++rows) {
    for (const bool load : {false, true}) {
      auto expected = c;
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < tile.columns; ++j) {
          Real& sum = expected[static_cast<std::size_t>(i * stride + j)];
          if (!load) sum = 0;
          for (std::int64_t s = 0; s < kDepth; ++s) {
            sum = std::fma(a[static_cast<std::size_t>(s * tile.rows + i)],
                           b[static_cast<std::size_t>(s * tile.columns + j)], sum);
          }
        }
      }
      for (const bool depth_major : {false, true}) {
        auto result = c;
        const auto next = c;
        (depth_major ? tile.depth_major : tile.row_major)[rows - 1]({.depth = kDepth,
                                                                     .a = depth_major ? a.data() : a_rows.data(),
                                                                     .lda = depth_major ? tile.rows : kDepth,
                                                                     .b = b.data(),
                                                                     .ldb = tile.columns,
                                                                     .c = result.data(),
                                                                     .ldc = stride,
                                                                     .load = load,
                                                                     .next = load ? next.data() : nullptr});
        EXPECT_TRUE(test::same_bits(result, expected))
            << rows << " rows of " << tile.rows << ", load " << load << ", depth_major " << depth_major;
      }
    }
  }
}

TEST(Gemm, TilesOfEveryWidthAgree) {
  expect_tile_chains(tile_kernels_avx2());
  expect_tile_chains(tile_kernels_avx2_f64());
  if (__builtin_cpu_supports("avx512f")) expect_tile_chains(tile_kernels_avx512());
}

}  // namespace
}  // namespace hone
