// The kinds of product that the CPU has for two bf16 matrices. They sum in different orders, so their results differ by
// rounding; each gives the same bits on every processor that has it.
#pragma once

#include <cstdint>
#include <string_view>

namespace hone {

enum class Bf16Products : std::uint8_t {
  kFma,     // one chain of fma in f32, as products of f32; every processor has it
  kAvx512,  // AVX512_BF16: one chain over pairs of k
  kAmx,     // AMX_BF16: one chain over sums of 32 elements of k
};

// Returns whether the processor has the instructions and the operating system lets this process use them.
[[nodiscard]] bool has_bf16_products(Bf16Products kind);

// Returns the kind that a value of the environment variable HONE_BF16_PRODUCTS names: fma, avx512 or amx; of an empty
// value, the fastest that this machine has. Throws Error for other values, and for a kind that this machine lacks.
[[nodiscard]] Bf16Products bf16_products_of(std::string_view value);

// Returns the kind in use: that of set_bf16_products, otherwise that of the variable.
[[nodiscard]] Bf16Products bf16_products();

// Selects a kind that this machine has.
void set_bf16_products(Bf16Products kind);

}  // namespace hone
