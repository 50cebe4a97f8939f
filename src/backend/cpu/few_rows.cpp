#include "backend/cpu/few_rows.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "backend/cpu/bf16_products.h"
#include "backend/cpu/gemm_parts.h"
#include "core/error.h"
#include "core/parallel.h"

namespace hone {
namespace {

constexpr std::int64_t kMostRows = 24;                          // more rows gain from packing b once for all of them
constexpr std::int64_t kReadPerThread = std::int64_t{1} << 15;  // least elements of b that are worth waking a thread

bool is_bf16(DType type) { return type == DType::kBf16; }

FewRowsProducts products_of(const GemmArgs& args) {
  if (!is_bf16(args.b_type)) return FewRowsProducts::kF32;
  const bool pairs = is_bf16(args.a_type) && bf16_products() == Bf16Products::kAvx512;
  return pairs ? FewRowsProducts::kBf16Pairs : FewRowsProducts::kBf16Fma;
}

const FewRowsKernels& kernels_of(FewRowsProducts products) {
  if (products == FewRowsProducts::kBf16Pairs) {
    static const FewRowsKernels pairs = few_rows_kernels_avx512_bf16();
    return pairs;
  }
  static const bool avx512 = __builtin_cpu_supports("avx512f");
  static const auto fastest = [](FewRowsProducts which) {
    return avx512 ? few_rows_kernels_avx512(which) : few_rows_kernels_avx2(which);
  };
  static const FewRowsKernels f32 = fastest(FewRowsProducts::kF32), bf16 = fastest(FewRowsProducts::kBf16Fma);
  return products == FewRowsProducts::kF32 ? f32 : bf16;
}

// Copies `count` rows of a as the factors [k][count] of f32.
template <class T>
void interleave(const GemmArgs& args, std::int64_t row, std::int64_t count, float* factors) {
  for (std::int64_t r = 0; r < count; ++r) {
    const T* from = static_cast<const T*>(args.a) + (row + r) * args.lda;
    for (std::int64_t i = 0; i < args.k; ++i) factors[i * count + r] = static_cast<float>(from[i]);
  }
}

// Copies `count` rows of a as the factors [k / 2][count] of pairs of bf16.
void interleave_pairs(const GemmArgs& args, std::int64_t row, std::int64_t count, float* factors) {
  for (std::int64_t r = 0; r < count; ++r) {
    const BFloat16* from = static_cast<const BFloat16*>(args.a) + (row + r) * args.lda;
    for (std::int64_t i = 0; i < args.k / 2; ++i) std::memcpy(factors + i * count + r, from + 2 * i, 2 * sizeof *from);
  }
}

// Computes columns of C, on one thread.
template <class Out>
class FewRowsPart {
 public:
  // Copies all of a into `factors`, m * k elements.
  FewRowsPart(const GemmArgs& args, const FewRowsKernels& kernels, float* factors)
      : args_(args), kernels_(kernels), factors_(factors) {
    for (std::int64_t row = 0; row < args.m; row += kFewRowsGroup) {
      float* group = factors + row * args.k;
      if (kernels.products == FewRowsProducts::kBf16Pairs) {
        interleave_pairs(args, row, rows_at(row), group);
      } else if (is_bf16(args.a_type)) {
        interleave<BFloat16>(args, row, rows_at(row), group);
      } else {
        interleave<float>(args, row, rows_at(row), group);
      }
    }
  }

  // The last panel of C begins early enough to be whole; its sums before `column` are another panel's.
  void run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; column += kernels_.lines) {
      const std::int64_t count = std::min(kernels_.lines, end - column);
      const std::int64_t first = std::min(column, args_.n - kernels_.lines);
      const bool last = column + kernels_.lines >= end;
      run_panel(first, last ? first : column + kernels_.lines, column, count);
    }
  }

 private:
  [[nodiscard]] std::int64_t rows_at(std::int64_t row) const {
    return std::min<std::int64_t>(kFewRowsGroup, args_.m - row);
  }
  [[nodiscard]] std::int64_t row_bytes(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(size_of(args_.b_type));
  }
  [[nodiscard]] const std::byte* b_at(std::int64_t line) const {
    return static_cast<const std::byte*>(args_.b) + line * row_bytes(args_.ldb);
  }

  // Computes the panel of rows of b from `first` on and writes `count` columns from `column` on.
  void run_panel(std::int64_t first, std::int64_t next, std::int64_t column, std::int64_t count) {
    alignas(kGemmAlignment) float sums[kFewRowsGroup * kFewRowsMostLines];
    FewRowsPanel panel{.b = b_at(first),
                       .stride = row_bytes(args_.ldb),
                       .blocks = row_bytes(args_.k) / kFewRowsBlock,
                       .next = b_at(next),
                       .sums = sums};
    for (std::int64_t row = 0; row < args_.m; row += kFewRowsGroup) {
      panel.factors = factors_ + row * args_.k;
      kernels_.panel[rows_at(row) - 1](panel);
      panel.next = panel.b;  // the next panel has been fetched
      for (std::int64_t r = 0; r < rows_at(row); ++r) {
        float* values = sums + r * kernels_.lines + column - first;
        if (args_.bias != nullptr) add_bias(args_, column, values, count);
        narrow(static_cast<Out*>(args_.c) + (row + r) * args_.ldc + column, values, count);
      }
    }
  }

  const GemmArgs& args_;
  const FewRowsKernels& kernels_;
  float* factors_;
};

template <class Out>
void run(const GemmArgs& args, const FewRowsKernels& kernels) {
  const std::size_t share = few_rows_share(args);
  const ThreadBuffers buffers = thread_buffers(args, share, kReadPerThread * args.m);
  parallel_for(buffers.threads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::byte* factors = buffers.base + static_cast<std::size_t>(begin) * share;
    FewRowsPart<Out> part(args, kernels, reinterpret_cast<float*>(factors));
    part.run(cut(args.n, kernels.lines, begin, buffers.threads), cut(args.n, kernels.lines, end, buffers.threads));
  });
}

}  // namespace

bool is_few_rows(const GemmArgs& args) {
  if (args.m > kMostRows || args.k == 0 || args.accumulate || args.c_type == DType::kF64) return false;
  if (args.transpose_a == Transpose::kYes || args.transpose_b == Transpose::kNo) return false;
  const bool amx = is_bf16(args.a_type) && is_bf16(args.b_type) && bf16_products() == Bf16Products::kAmx;
  const std::int64_t bytes = args.k * static_cast<std::int64_t>(size_of(args.b_type));
  return !amx && bytes % kFewRowsBlock == 0 && args.n >= kFewRowsMostLines;
}

void few_rows(const GemmArgs& args) { few_rows(args, kernels_of(products_of(args))); }

void few_rows(const GemmArgs& args, const FewRowsKernels& kernels) {
  if (args.c_type == DType::kBf16) return run<BFloat16>(args, kernels);
  run<float>(args, kernels);
}

std::size_t few_rows_share(const GemmArgs& args) {
  const auto elements = static_cast<std::size_t>(std::min(args.m, kMostRows) * args.k);
  return (elements * sizeof(float) + kGemmAlignment - 1) / kGemmAlignment * kGemmAlignment;
}

}  // namespace hone
