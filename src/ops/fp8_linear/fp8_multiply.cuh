// wgmma with A in registers and up to 128 columns: what wgmma.cuh has for 64 and 128, and fewer.
#pragma once

#include <cstdint>

#include "backend/cuda/wgmma.cuh"

namespace hone {

// Computes c[64, 8 kCount] = keep c + a[64, 16] b[16, 8 kCount] as warpgroup_multiply does, b stored as columns of k.
template <int kCount>
__device__ inline void multiply_registers(float (&c)[kCount][4], const std::uint32_t (&a)[4], std::uint64_t b,
                                          int keep) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4 || kCount == 8 || kCount == 16);
  if constexpr (kCount == 1) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, keep, 1, 1, 0;\n"
        "}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  } else if constexpr (kCount == 2) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, keep, 1, 1, 0;\n}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
          "+f"(c[1][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  } else if constexpr (kCount == 4) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15}, {%16, %17, %18, %19}, %20, keep, 1, 1, 0;\n}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
          "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
          "+f"(c[3][2]), "+f"(c[3][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  } else {
    warpgroup_multiply<Major::kK>(c, a, b, keep);
  }
}

}  // namespace hone
