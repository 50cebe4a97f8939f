// Element types of tensors: their names, sizes and C++ types, and bfloat16 on the CPU.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace hone {

enum class DType : std::uint8_t { kF32, kBf16, kF64, kI32, kI64, kU8 };

[[nodiscard]] std::size_t size_of(DType dtype);              // bytes
[[nodiscard]] std::string_view name_of(DType dtype);         // "f32", "bf16", ...
[[nodiscard]] DType dtype_from_name(std::string_view name);  // throws Error
[[nodiscard]] bool is_floating(DType dtype);

// bfloat16: the upper 16 bits of a float. Conversion rounds to nearest even and keeps NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = word + 0x7FFFu + ((word >> 16) & 1u);
    bits = (word & 0x7FFFFFFFu) > 0x7F800000u ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
                                              : static_cast<std::uint16_t>(rounded >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBf16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};

// Type in which sums and statistics over values of T are accumulated.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
[[nodiscard]] constexpr DType accumulator_of(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

}  // namespace hone
