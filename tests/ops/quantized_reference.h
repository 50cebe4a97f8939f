// An independent reference in f64 of quantization to e4m3 and of products of quantized operands.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/float8.h"
#include "ops/test_run.h"

namespace hone::test {

using Matrix = std::vector<double>;  // row-major

// The least power of two with which no value is above 448; 1 for zeros.
inline double reference_scale(std::span<const double> values) {
  double amax = 0;
  for (const double value : values) amax = std::max(amax, std::fabs(value));
  if (amax == 0) return 1;
  double scale = std::ldexp(1.0, -100);
  while (amax > 448 * scale) scale *= 2;
  return scale;
}

// The nearest number of e4m3, of two the one with an even byte, found among all of them.
inline std::uint8_t reference_byte(double value) {
  static const std::vector<double> numbers = [] {
    std::vector<double> all(0x7F);
    for (std::size_t byte = 0; byte < all.size(); ++byte) {
      all[byte] = static_cast<double>(e4m3_value(static_cast<std::uint8_t>(byte)));
    }
    return all;
  }();
  std::size_t best = 0;
  for (std::size_t byte = 1; byte < numbers.size(); ++byte) {
    const double distance = std::fabs(std::fabs(value) - numbers[byte]);
    const double least = std::fabs(std::fabs(value) - numbers[best]);
    if (distance < least || (distance == least && byte % 2 == 0)) best = byte;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

struct Reference {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;  // by block of rows, then by block of columns
  Matrix values;              // bytes x scale
};

// Quantizes [rows, columns] in blocks of block_rows x block_columns.
inline Reference reference_of(const Matrix& x, std::int64_t rows, std::int64_t columns, std::int64_t block_rows,
                              std::int64_t block_columns) {
  Reference result{std::vector<std::uint8_t>(x.size()), {}, Matrix(x.size())};
  for (std::int64_t row = 0; row < rows; row += block_rows) {
    for (std::int64_t column = 0; column < columns; column += block_columns) {
      std::vector<std::size_t> places;
      std::vector<double> block;
      for (std::int64_t i = row; i < std::min(row + block_rows, rows); ++i) {
        for (std::int64_t j = column; j < std::min(column + block_columns, columns); ++j) {
          places.push_back(static_cast<std::size_t>(i * columns + j));
          block.push_back(x[places.back()]);
        }
      }
      const double scale = reference_scale(block);
      result.scales.push_back(static_cast<float>(scale));
      for (const std::size_t place : places) {
        result.bytes[place] = reference_byte(x[place] / scale);
        result.values[place] = static_cast<double>(e4m3_value(result.bytes[place])) * scale;
      }
    }
  }
  return result;
}

inline Matrix transposed(const Matrix& x, std::int64_t rows, std::int64_t columns) {
  Matrix result(x.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) result[j * rows + i] = x[i * columns + j];
  }
  return result;
}

// Normal numbers of magnitudes that differ from block to block, with zeros, as bf16. Rows from `used` on are garbage.
inline std::vector<BFloat16> values_of(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  std::vector<BFloat16> values = normal_values<BFloat16>(static_cast<std::size_t>(rows * columns), seed);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      BFloat16& value = values[static_cast<std::size_t>(row * columns + column)];
      const auto exponent = static_cast<int>((row / 3 + 5 * (column / 50) + static_cast<int>(seed)) % 11) - 7;
      value = BFloat16(std::ldexp(static_cast<float>(value), exponent));
      if (row % 17 == 4 && column < 140) value = BFloat16(0.0F);
    }
  }
  return values;
}

inline Matrix widened(const std::vector<BFloat16>& values, std::int64_t rows, std::int64_t used, std::int64_t columns) {
  Matrix result(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < used * columns; ++i) result[i] = static_cast<double>(static_cast<float>(values[i]));
  return result;
}

// Rows of a b^T, each element with the sum of the magnitudes of its terms, to which errors are relative.
struct Product {
  Matrix values, magnitudes;
};
inline Product multiply(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  Product result{Matrix(static_cast<std::size_t>(m * n)), Matrix(static_cast<std::size_t>(m * n))};
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        const double term = a[i * k + l] * b[j * k + l];
        result.values[i * n + j] += term;
        result.magnitudes[i * n + j] += std::fabs(term);
      }
    }
  }
  return result;
}

// kSums: errors of the additions of k terms, relative to their magnitudes; result: of the result. A CPU adds in f32.
// Tensor cores of Hopper cut what they add, 32 products of e4m3 at a time, 13 bits behind the leading one of the
// largest (DeepSeek-V3 technical report, section 3.3.2), always towards 0.
template <class T>
void expect_near(const std::vector<T>& actual, const Product& expected, std::int64_t elements, double result,
                 const std::string& name) {
  const double kSums = test_device().kind() == DeviceKind::kCpu ? 0x1p-15 : 0x1p-10;
  for (std::int64_t i = 0; i < elements; ++i) {
    const double error = std::fabs(static_cast<double>(static_cast<float>(actual[i])) - expected.values[i]);
    ASSERT_LE(error, result * std::fabs(expected.values[i]) + kSums * expected.magnitudes[i] + 1e-30)
        << name << " at " << i << ": " << static_cast<float>(actual[i]) << ", expected " << expected.values[i];
  }
}

template <class T>
std::vector<T> typed(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace hone::test
