// Products of quantized matrices by own kernels of Hopper (ops/scaled_linear/wgmma_dense.cuh) have cuBLASLt's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/compare.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/parallel.h"
#include "ops/scaled_linear/dense_cuda.h"
#include "support/device.h"

namespace hone::test {
namespace {

struct DenseShape {
  std::int64_t m, n, k;
  bool bias = false;
};

std::uint64_t next_number(std::uint64_t& state) {
  state = state * 6364136223846793005 + 1442695040888963407;
  return state >> 32;
}

// Bytes of e4m3 that are numbers, in `count` bytes of device memory: parts of one array, from different places on.
void fill_bytes(CudaDevice& device, std::byte* to, std::int64_t count, std::uint64_t seed) {
  constexpr std::int64_t kPart = 1 << 22;
  static const std::vector<std::uint8_t> numbers = [] {
    std::vector<std::uint8_t> bytes(2 * kPart);
    std::uint64_t state = 1;
    for (std::uint8_t& byte : bytes) {
      byte = static_cast<std::uint8_t>(next_number(state));
      if (byte % 128 == 127) --byte;  // NaN
    }
    return bytes;
  }();
  for (std::int64_t at = 0; at < count; at += kPart) {
    device.upload(to + at, numbers.data() + next_number(seed) % kPart,
                  static_cast<std::size_t>(std::min(kPart, count - at)));
  }
}

// Powers of two up to 2^largest.
std::vector<float> scales(std::int64_t count, std::uint64_t state, int largest) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = std::ldexp(1.0F, largest - static_cast<int>(next_number(state) % 6));
  return values;
}

Buffer uploaded(CudaDevice& device, const void* from, std::size_t bytes) {
  Buffer buffer(device, bytes);
  device.upload(buffer.data(), from, bytes);
  return buffer;
}
template <class T>
Buffer uploaded(CudaDevice& device, const std::vector<T>& values) {
  return uploaded(device, values.data(), values.size() * sizeof(T));
}

class DenseProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (test_device().kind() != DeviceKind::kCuda || device().compute_capability() != 90) {
      GTEST_SKIP() << "kernels of compute capability 9.0";
    }
  }
  static CudaDevice& device() { return static_cast<CudaDevice&>(test_device()); }

  // The number of words that differ.
  static std::uint64_t differences(const Buffer& a, const Buffer& b, std::size_t bytes) {
    const Buffer count = uploaded(device(), std::vector<std::uint64_t>{0});
    count_differences(a.data(), b.data(), bytes, reinterpret_cast<unsigned long long*>(count.data()),
                      device().stream());
    std::uint64_t differences = 0;
    device().download(&differences, count.data(), 8);
    return differences;
  }

  // C after two products of this type have been added to `old`, of bf16: cuBLASLt's product in f32, each sum rounded.
  static void add_twice(ScaledGemmArgs args, std::span<BFloat16> old) {
    CudaDevice& device = DenseProducts::device();
    const std::int64_t count = args.m * args.n;
    std::vector<float> product(static_cast<std::size_t>(count), 0.0F);
    const Buffer sums = uploaded(device, product);
    args.c = sums.data();
    args.c_type = DType::kF32;
    device.cublas().scaled_gemm(args, device.stream());
    device.download(product.data(), sums.data(), product.size() * sizeof(float));
    parallel_for(count, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        for (int time = 0; time < 2; ++time) old[i] = BFloat16(static_cast<float>(old[i]) + product[i]);
      }
    });
  }

  // Compares C of both tiles, and what follows it, with that of cuBLASLt. With `accumulate` two products are added.
  static void expect_same(const DenseShape& shape, DType type, bool accumulate) {
    constexpr std::size_t kAfter = 4096;  // bytes after C that nothing may write
    const auto& [m, n, k, has_bias] = shape;
    SCOPED_TRACE(text_of(m, " x ", n, " x ", k, accumulate ? " added in " : " in ", name_of(type)));
    CudaDevice& device = DenseProducts::device();
    Buffer a(device, static_cast<std::size_t>(m * k));
    Buffer b(device, static_cast<std::size_t>(n * k));
    fill_bytes(device, a.data(), m * k, 2);
    fill_bytes(device, b.data(), n * k, 3);
    const std::int64_t stages = (k + 127) / 128;
    const Buffer a_scale = uploaded(device, scales(stages * m, 4, -4));
    const Buffer b_scale = uploaded(device, scales(n / 128 * ((stages + 3) / 4 * 4), 5, -4));
    const Buffer bias = uploaded(device, scales(n, 6, 12));  // as bf16
    const std::size_t bytes = static_cast<std::size_t>(m * n) * size_of(type) + kAfter;
    const std::vector<float> old = scales(static_cast<std::int64_t>(bytes / 4), 7, 12);
    const Buffer workspace(device, kCublasWorkspace);
    ScaledGemmArgs args{.m = m,
                        .n = n,
                        .k = k,
                        .a = reinterpret_cast<const std::uint8_t*>(a.data()),
                        .a_scale = reinterpret_cast<const float*>(a_scale.data()),
                        .b = reinterpret_cast<const std::uint8_t*>(b.data()),
                        .b_scale = reinterpret_cast<const float*>(b_scale.data()),
                        .c_type = type,
                        .bias = has_bias ? bias.data() : nullptr,
                        .accumulate = accumulate,
                        .workspace = {workspace.data(), kCublasWorkspace}};
    Buffer expected = uploaded(device, old);
    args.c = expected.data();
    if (accumulate && type == DType::kBf16) {
      std::vector<BFloat16> sums(bytes / sizeof(BFloat16));
      std::memcpy(sums.data(), old.data(), bytes);
      add_twice(args, std::span(sums).first(static_cast<std::size_t>(m * n)));
      expected = uploaded(device, sums);
      const Buffer seen = uploaded(device, old);
      args.c = seen.data();
      for (int i = 0; i < 2; ++i) device.cublas().scaled_gemm(args, device.stream());
      EXPECT_EQ(differences(seen, expected, bytes), 0u) << "cuBLASLt";
    } else {
      for (int i = 0; i < (accumulate ? 2 : 1); ++i) device.cublas().scaled_gemm(args, device.stream());
    }
    for (const DenseTiles tiles : {DenseTiles::kWide, DenseTiles::kTall}) {
      const Buffer seen = uploaded(device, old);
      args.c = seen.data();
      const bool fits = tiles == DenseTiles::kWide || n % 256 == 0;
      for (int i = 0; i < (accumulate ? 2 : 1); ++i) ASSERT_EQ(launch_dense(args, tiles, {}, device), fits);
      if (!fits) continue;
      EXPECT_EQ(differences(seen, expected, bytes), 0u) << (tiles == DenseTiles::kWide ? "128 x 192" : "256 x 128");
    }
  }
};

TEST_F(DenseProducts, OfFewTiles) {
  for (const DenseShape& shape : {DenseShape{16, 128, 512}, DenseShape{144, 384, 640, true}, DenseShape{528, 640, 1040},
                                  DenseShape{1008, 1920, 4096, true}, DenseShape{16, 256, 512},
                                  DenseShape{144, 768, 640, true}, DenseShape{1008, 1792, 4096}}) {
    expect_same(shape, DType::kBf16, false);
  }
  for (const DenseShape& shape :
       {DenseShape{128, 128, 528}, DenseShape{384, 896, 1040}, DenseShape{128, 256, 528}, DenseShape{384, 768, 1040}}) {
    expect_same(shape, DType::kBf16, true);
    expect_same(shape, DType::kF32, true);
  }
}

// Two rows of boxes of scales, and blocks with several tiles of few stages, whose scales take turns.
TEST_F(DenseProducts, OfManyTermsAndTiles) {
  expect_same({2048, 2048, 32896}, DType::kBf16, false);
  expect_same({8192, 8192, 512}, DType::kBf16, false);
  for (const DType type : {DType::kBf16, DType::kF32}) expect_same({8128, 8192, 640}, type, true);
}

// Llama 3.1 8B, 8,192 tokens, and Qwen2.5 7B, 16,384 tokens.
TEST_F(DenseProducts, OfModelsForward) {
  for (const DenseShape& shape :
       {DenseShape{8192, 6144, 4096}, DenseShape{8192, 4096, 4096}, DenseShape{8192, 28672, 4096},
        DenseShape{8192, 4096, 14336}, DenseShape{16384, 4608, 3584, true}, DenseShape{16384, 3584, 3584},
        DenseShape{16384, 37888, 3584}, DenseShape{16384, 3584, 18944}}) {
    expect_same(shape, DType::kBf16, false);
  }
}
TEST_F(DenseProducts, OfModelsInputGradients) {
  for (const DenseShape& shape :
       {DenseShape{8192, 4096, 6144}, DenseShape{8192, 4096, 28672}, DenseShape{8192, 14336, 4096},
        DenseShape{16384, 3584, 4608}, DenseShape{16384, 3584, 37888}, DenseShape{16384, 18944, 3584}}) {
    expect_same(shape, DType::kBf16, false);
  }
}
TEST_F(DenseProducts, OfModelsWeightGradients) {
  for (const DenseShape& shape :
       {DenseShape{6144, 4096, 8192}, DenseShape{4096, 4096, 8192}, DenseShape{28672, 4096, 8192},
        DenseShape{4096, 14336, 8192}, DenseShape{4608, 3584, 16384}, DenseShape{3584, 3584, 16384},
        DenseShape{37888, 3584, 16384}, DenseShape{3584, 18944, 16384}}) {
    expect_same(shape, DType::kBf16, true);
  }
  expect_same({6144, 4096, 8192}, DType::kF32, true);
  expect_same({3584, 18944, 16384}, DType::kF32, true);
}

// On a device of 132 SMs.
TEST(DenseChoice, IsTheFasterOne) {
  const auto choice = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return dense_choice({.m = m, .n = n, .k = k}, 132).tiles;
  };
  EXPECT_EQ(choice(8192, 4096, 4096), DenseTiles::kTall);
  EXPECT_EQ(choice(128, 28672, 4096), DenseTiles::kWide);
  EXPECT_EQ(choice(8192, 4224, 4096), DenseTiles::kWide);
  EXPECT_EQ(choice(8192, 4096, 384), DenseTiles::kNone);
  EXPECT_EQ(choice(8192, 4096, 128 * 513), DenseTiles::kNone);
  EXPECT_EQ(choice(8194, 4096, 4096), DenseTiles::kNone);
  EXPECT_EQ(choice(8192, 4160, 4096), DenseTiles::kNone);
}

}  // namespace
}  // namespace hone::test
