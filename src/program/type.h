// Types of values: element type and shape.
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

// A static capacity. The first dimension of a shape may have a count: then `factor` times as many rows as it says are
// in use (tokens x experts a token).
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
  DType dtype = DType::f32;
  Shape shape;

  // Throws Error unless every dimension is 0 or more, none but the first has a count, a count's factor divides its
  // capacity, and bytes() is at most 2^60, so that sums and products of a program's sizes stay within 64 bits.
  void check() const;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t rows() const { return shape.empty() ? 1 : shape[0].size; }
  // What says how many rows are in use.
  [[nodiscard]] Count count() const { return shape.empty() ? Count::none : shape[0].count; }
  // Elements of one row: the product of all dimensions but the first.
  [[nodiscard]] std::int64_t row_size() const;
  [[nodiscard]] std::size_t bytes() const;
  bool operator==(const Type&) const = default;
};

// "bf16[tokens:1024, 64]", "f32[8*tokens:8192]".
[[nodiscard]] std::string to_text(const Type& type);
[[nodiscard]] Type type_from_text(std::string_view text);  // throws Error

}  // namespace hone
