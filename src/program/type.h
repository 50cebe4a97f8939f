// Types of the values of a program: dtype and shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "program/count.h"

namespace hone {

// One dimension of a shape. Its size is static. The first dimension may have a count, which tells how many of its rows
// are in use: count x factor rows. The factor is, for example, the number of experts per token.
struct Dim {
  std::int64_t size = 0;
  Count count;
  std::int64_t factor = 1;

  Dim() = default;
  Dim(std::int64_t size_, Count count_ = Count::none, std::int64_t factor_ = 1)  // NOLINT: a plain size is a Dim
      : size(size_), count(count_), factor(factor_) {}
  bool operator==(const Dim&) const = default;
};

using Shape = std::vector<Dim>;

struct Type {
  DType dtype = DType::kF32;
  Shape shape;

  // Throws Error unless all dimensions are at least 0, only the first has a count, each factor divides the size of its
  // dimension, and bytes() is at most 2^60, so that sums and products of the sizes of a program fit into 64 bits.
  void check() const;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t rows() const { return shape.empty() ? 1 : shape[0].size; }
  // Count of the first dimension; Count::none if all rows are in use.
  [[nodiscard]] Count count() const { return shape.empty() ? Count::none : shape[0].count; }
  // Number of elements of one row: the product of all dimensions except the first.
  [[nodiscard]] std::int64_t row_size() const;
  [[nodiscard]] std::size_t bytes() const;
  bool operator==(const Type&) const = default;
};

// Prints "bf16[tokens:1024, 64]" or, with a factor of 8, "f32[8*tokens:8192]".
[[nodiscard]] std::string to_text(const Type& type);
[[nodiscard]] Type type_from_text(std::string_view text);  // throws Error

}  // namespace hone
