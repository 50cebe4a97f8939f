// Types of values: element type and shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace hone {

// What says how much of a capacity is in use; the numbers are data of each run.
enum class Count : std::uint8_t {
  none,       // all of it
  tokens,     // rows of tokens
  sequences,  // documents laid end to end in those rows
  samples,    // rows whose logits are wanted
};
inline constexpr std::size_t kCounts = 4;

// A static capacity. Only the first dimension of a shape has a count.
struct Dim {
  std::int64_t size = 0;
  Count count = Count::none;

  Dim() = default;
  Dim(std::int64_t size_, Count count_ = Count::none) : size(size_), count(count_) {}  // NOLINT: a plain size is a Dim
  bool operator==(const Dim&) const = default;
};

using Shape = std::vector<Dim>;

struct Type {
  DType dtype = DType::f32;
  Shape shape;

  // Throws Error unless every dimension is 0 or more and bytes() is at most 2^60, so that sums and products of a
  // program's sizes stay within 64 bits.
  void check() const;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t rows() const { return shape.empty() ? 1 : shape[0].size; }
  // Elements of one row: the product of all dimensions but the first.
  [[nodiscard]] std::int64_t row_size() const;
  [[nodiscard]] std::size_t bytes() const;
  bool operator==(const Type&) const = default;
};

// "bf16[tokens:1024, 64]".
[[nodiscard]] std::string to_text(const Type& type);
[[nodiscard]] Type type_from_text(std::string_view text);  // throws Error

}  // namespace hone
