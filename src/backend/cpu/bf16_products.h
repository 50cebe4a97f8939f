// The kinds of product that the CPU has for two bf16 matrices. They sum in different orders, so their results differ by
// rounding; each gives the same bits on every processor that has it.
#pragma once

#include <cstdint>

namespace hone {

enum class Bf16Products : std::uint8_t {
  kFma,     // one chain of fma in f32, as products of f32; every processor has it
  kAvx512,  // AVX512_BF16: one chain over pairs of k
  kAmx,     // AMX_BF16: one chain over sums of 32 elements of k
};

// Returns whether the processor has the instructions and the operating system lets this process use them.
[[nodiscard]] bool has_bf16_products(Bf16Products kind);

// Returns the kind in use: that of set_bf16_products, otherwise that of the environment variable HONE_BF16_PRODUCTS
// (fma, avx512, amx), otherwise the one that is the fastest on this kind of processor. Throws Error if the variable
// names another kind, or one that this machine does not have.
[[nodiscard]] Bf16Products bf16_products();

// Selects a kind that this machine has.
void set_bf16_products(Bf16Products kind);

}  // namespace hone
